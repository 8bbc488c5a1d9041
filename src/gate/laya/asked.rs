//! A question as the artefact is asked it, and what the reference makes of it.

use super::Judge;
use crate::eval::{HostTensor, Values};
use crate::gate::numbers::{given, leading_ones};
use crate::gate::{Golden, GoldenError, Subject, Tensors};
use crate::models::laya::host::{Feature, Features, QuestionType, Rows};
use crate::models::laya::{SLOTS, names};

/// The action head's logits in a golden.
pub const ACTION: &str = "action";

const INPUT_IDS: &str = "input_ids";
const ATTENTION_MASK: &str = "attention_mask";
const MARKER_POS: &str = "marker_pos";
const MARKER_MASK: &str = "marker_mask";
const QTYPE: &str = "qtype";

/// The tensors that are read of a golden: the graph's inputs, the rows they are made of, and the reference's outputs.
pub const TENSORS: [&str; 13] = [
    names::EMBEDDINGS,
    names::FULL_MASK,
    names::LOCAL_MASK,
    names::TYPE_VECTORS,
    names::MARKER_MAP,
    INPUT_IDS,
    ATTENTION_MASK,
    MARKER_POS,
    MARKER_MASK,
    QTYPE,
    names::LOGITS,
    names::CLS,
    ACTION,
];

/// A question laid out for an artefact.
pub struct Asked<'a, E> {
    /// What it is called.
    pub name: String,
    /// What kind of answer is wanted.
    pub kind: QuestionType,
    /// Whether each position belongs to the sequence.
    pub valid: Vec<bool>,
    /// The graph's inputs.
    pub inputs: Tensors,
    /// What the reference makes of it.
    pub reference: Reference,
    /// How the host lays the question out; none where there is no text to lay out.
    pub layout: Option<Layout>,
    /// The artefact, in a form of the question's length.
    pub subject: &'a dyn Subject<Error = E>,
}

/// What the reference makes of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The logit of each option, in the order in which they are shown.
    pub logits: Vec<f32>,
    /// What the action head reads; none where it is not told.
    pub cls: Option<Vec<f32>>,
    /// The action head's logits; none where they are not told.
    pub action: Option<Vec<f32>>,
}

/// Whether the host made the same tokens of a question as the reference's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// It did.
    Same,
    /// It made others, or none.
    Other {
        /// In what they differ.
        says: String,
    },
}

impl<E> Asked<'_, E> {
    /// How many options the question has.
    pub fn options(&self) -> usize {
        self.reference.logits.len()
    }

    /// Tokens of the sequence.
    pub fn tokens(&self) -> usize {
        self.valid.iter().filter(|valid| **valid).count()
    }
}

/// The rows of integers in a golden, still to be [checked](Rows::check).
///
/// # Errors
/// One is absent or of another shape, or a mask is not ones and then zeros.
pub fn rows(golden: &Golden) -> Result<Rows, GoldenError> {
    let integers = |tensor: &'static str| -> Result<Vec<i64>, GoldenError> {
        let found = golden.tensors.get(tensor).ok_or(GoldenError::Missing { tensor })?;
        match (found.values(), found.fact().shape.dims()) {
            (Values::I32(values), [1] | [1, _]) => Ok(values.iter().copied().map(i64::from).collect()),
            (Values::I32(_) | Values::F32(_), _) => {
                Err(GoldenError::Shape { tensor, found: found.fact().clone(), expected: "one row of integers".into() })
            }
        }
    };
    let qtype = integers(QTYPE)?;
    let &[qtype] = qtype.as_slice() else {
        let found = golden.tensors.get(QTYPE).ok_or(GoldenError::Missing { tensor: QTYPE })?.fact().clone();
        return Err(GoldenError::Shape { tensor: QTYPE, found, expected: "one integer".into() });
    };
    let mask = |tensor| -> Result<Vec<i64>, GoldenError> {
        let mask = integers(tensor)?;
        leading_ones(tensor, &mask.iter().map(|v| *v as f32).collect::<Vec<_>>())?;
        Ok(mask)
    };
    Ok(Rows {
        input_ids: integers(INPUT_IDS)?,
        attention_mask: mask(ATTENTION_MASK)?,
        marker_pos: integers(MARKER_POS)?,
        marker_mask: mask(MARKER_MASK)?,
        qtype,
    })
}

/// Holds the graph's inputs in a golden against those that the host makes of the golden's rows, bit for bit: a golden of
/// another table of embeddings or of other masks is of another model.
///
/// # Errors
/// One is absent, of another shape, or has another number.
pub fn same_inputs(golden: &Golden, made: &Features) -> Result<(), GoldenError> {
    for Feature { name: tensor, fact, values } in made.iter() {
        let (found, floats) = given(golden, tensor)?;
        if found.fact().shape != fact.shape {
            let expected = fact.shape.to_string();
            return Err(GoldenError::Shape { tensor, found: found.fact().clone(), expected });
        }
        let other = floats.iter().zip(values).enumerate().find(|(_, (found, made))| found != made);
        if let Some((index, (found, made))) = other {
            return Err(GoldenError::Input { tensor, index, found: *found, expected: *made });
        }
    }
    Ok(())
}

/// What the reference makes of a golden with those rows.
///
/// # Errors
/// An output is absent, of another shape or not finite.
pub fn reference(golden: &Golden, rows: &Rows, judge: &Judge<'_>) -> Result<Reference, GoldenError> {
    let output = |tensor: &'static str, expected: usize| {
        let (found, values) = given(golden, tensor)?;
        if values.len() == expected {
            Ok(values.to_vec())
        } else {
            let expected = format!("{expected} numbers");
            Err(GoldenError::Shape { tensor, found: found.fact().clone(), expected })
        }
    };
    let told = |tensor: &'static str, expected| {
        golden.tensors.contains_key(tensor).then(|| output(tensor, expected)).transpose()
    };
    let options = rows.marker_mask.iter().filter(|flag| **flag == 1).count();
    let mut logits = output(names::LOGITS, SLOTS)?;
    logits.truncate(options);
    Ok(Reference {
        logits,
        cls: told(names::CLS, judge.action.hidden())?,
        action: told(ACTION, judge.action.actions())?,
    })
}

/// The graph's inputs as tensors to run.
///
/// # Errors
/// One has not as many numbers as its shape says.
pub fn tensors(features: &Features) -> Result<Tensors, crate::eval::HostError> {
    let tensor = |feature: &Feature| {
        let values = Values::F32(feature.values.clone());
        Ok((feature.name.to_string(), HostTensor::new(feature.fact.clone(), values)?))
    };
    features.iter().map(tensor).collect()
}
