//! The description of a model: features and metadata.

use super::Element;
use super::error::WireError;
use super::program::{TensorKind, ValueKind};
use super::wire::Message;
use std::collections::BTreeMap;

/// What a model says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelDescription {
    /// Features described at the top, which is where a model of one function has them.
    pub top: Features,
    /// Features of each function, in a model of several.
    pub functions: Vec<(String, Features)>,
    /// The function that runs when none is asked for.
    pub default_function: String,
    /// Text for people.
    pub metadata: Metadata,
}

/// Inputs, outputs and states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// What goes in.
    pub inputs: Vec<Feature>,
    /// What comes out.
    pub outputs: Vec<Feature>,
    /// What stays between calls.
    pub states: Vec<Feature>,
}

/// One input, output or state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// A sentence about it.
    pub text: String,
    /// Its type; anything but a tensor and a state of a tensor is `Other`.
    pub kind: ValueKind,
}

/// Text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// What the model does.
    pub short: String,
    /// Version of the model.
    pub version: String,
    /// Who made it.
    pub author: String,
    /// Its license.
    pub license: String,
    /// Anything else, by key.
    pub user_defined: BTreeMap<String, String>,
}

type Parsed<T> = Result<T, WireError>;

pub(super) fn model_description(mut message: Message<'_>) -> Parsed<ModelDescription> {
    let mut description = ModelDescription::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => description.top.inputs.push(feature(field.message()?)?),
            10 => description.top.outputs.push(feature(field.message()?)?),
            13 => description.top.states.push(feature(field.message()?)?),
            20 => description.functions.push(function(field.message()?)?),
            21 => description.default_function = field.text()?,
            100 => description.metadata = metadata(field.message()?)?,
            _ => {}
        }
    }
    Ok(description)
}

fn function(mut message: Message<'_>) -> Parsed<(String, Features)> {
    let (mut name, mut features) = (String::new(), Features::default());
    while let Some(field) = message.next()? {
        match field.number {
            1 => name = field.text()?,
            2 => features.inputs.push(feature(field.message()?)?),
            3 => features.outputs.push(feature(field.message()?)?),
            6 => features.states.push(feature(field.message()?)?),
            _ => {}
        }
    }
    Ok((name, features))
}

fn feature(mut message: Message<'_>) -> Parsed<Feature> {
    let mut feature = Feature { name: String::new(), text: String::new(), kind: ValueKind::Other };
    while let Some(field) = message.next()? {
        match field.number {
            1 => feature.name = field.text()?,
            2 => feature.text = field.text()?,
            3 => feature.kind = feature_kind(field.message()?)?,
            _ => {}
        }
    }
    Ok(feature)
}

fn feature_kind(mut message: Message<'_>) -> Parsed<ValueKind> {
    let mut kind = ValueKind::Other;
    while let Some(field) = message.next()? {
        match field.number {
            5 => kind = ValueKind::Tensor(array(field.message()?)?),
            8 => {
                let mut state = field.message()?;
                while let Some(field) = state.next()? {
                    if field.number == 1 {
                        kind = ValueKind::State(array(field.message()?)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(kind)
}

fn array(mut message: Message<'_>) -> Parsed<TensorKind> {
    let mut tensor = TensorKind { element: Element::Other(0), dims: Vec::new() };
    while let Some(field) = message.next()? {
        match field.number {
            1 => field.numbers(|extent| tensor.dims.push(u64::try_from(extent as i64).ok()))?,
            2 => tensor.element = Element::of_feature(field.number()?),
            _ => {}
        }
    }
    Ok(tensor)
}

fn metadata(mut message: Message<'_>) -> Parsed<Metadata> {
    let mut metadata = Metadata::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => metadata.short = field.text()?,
            2 => metadata.version = field.text()?,
            3 => metadata.author = field.text()?,
            4 => metadata.license = field.text()?,
            100 => {
                let (mut entry, mut pair) = (field.message()?, (String::new(), String::new()));
                while let Some(field) = entry.next()? {
                    match field.number {
                        1 => pair.0 = field.text()?,
                        2 => pair.1 = field.text()?,
                        _ => {}
                    }
                }
                metadata.user_defined.insert(pair.0, pair.1);
            }
            _ => {}
        }
    }
    Ok(metadata)
}
