//! The options of each type of question, from its criteria and labels.

use super::question::{Checked, QuestionFault, QuestionOption, found, shown};
use super::render;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Whether a criterion says nothing of its own.
fn is_silent(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

/// The options of a choice: labels, with or without a description.
pub fn choice(criteria: &Value) -> Checked<Vec<QuestionOption>> {
    let entries: Vec<(Value, &Value)> = match criteria {
        Value::Array(labels) => labels.iter().map(|label| (label.clone(), &Value::Null)).collect(),
        Value::Object(entries) => entries.iter().map(|(label, about)| (label.as_str().into(), about)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let expected = "an object of label and description, or a list of labels";
            return Err(QuestionFault::Criteria { found: found(criteria), expected });
        }
    };
    let mut options = Vec::with_capacity(entries.len());
    for (index, (label, about)) in entries.into_iter().enumerate() {
        if matches!(label, Value::Null | Value::Array(_) | Value::Object(_)) {
            return Err(QuestionFault::Label { index, found: found(&label) });
        }
        let name = render::label(&label);
        let text = if is_silent(about) { name } else { format!("{name}: {}", render::text(about)) };
        options.push(QuestionOption { label, text });
    }
    match repeated(&options) {
        Some((index, first)) => {
            let label = options.get(index).map(|option| shown(&option.label)).unwrap_or_default();
            Err(QuestionFault::Repeated { index, first, label })
        }
        None => Ok(options),
    }
}

/// A number that Python tells from others: 1, 1.0 and true are one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    Whole(i128),
    /// The bits of one that is not whole, or too large to be anything but its own float.
    Other(u64),
}

fn number(label: &Value) -> Option<Number> {
    let whole = |x: f64| x.fract() == 0.0 && x.abs() < 1e38;
    match label {
        Value::Bool(flag) => Some(Number::Whole((*flag).into())),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(n), _, _) => Some(Number::Whole(n.into())),
            (_, Some(n), _) => Some(Number::Whole(n.into())),
            (_, _, Some(x)) if whole(x) => Some(Number::Whole(x as i128)),
            (_, _, x) => x.map(|x| Number::Other(x.to_bits())),
        },
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The first label that cannot be told from one before it: they are equal as numbers, or one key of the answer, as 1 and
/// "1" are.
fn repeated(options: &[QuestionOption]) -> Option<(usize, usize)> {
    let (mut keys, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    for (index, option) in options.iter().enumerate() {
        let of_number = number(&option.label).map(|number| *numbers.entry(number).or_insert(index));
        let of_key = *keys.entry(option.key()).or_insert(index);
        let first = of_number.map_or(of_key, |first| first.min(of_key));
        if first < index {
            return Some((index, first));
        }
    }
    None
}

/// The options of a score: a description of each level.
pub fn score(criteria: &Value) -> Checked<Vec<QuestionOption>> {
    let Value::Array(levels) = criteria else {
        let expected = "a list of descriptions, of level 0 first";
        return Err(QuestionFault::Criteria { found: found(criteria), expected });
    };
    if let Some(index) = levels.iter().position(Value::is_null) {
        return Err(QuestionFault::NullLevel { index });
    }
    let option = |(index, level): (usize, &Value)| {
        let about = render::text(level);
        QuestionOption { text: format!("level {index}: {about}"), label: about.into() }
    };
    Ok(levels.iter().enumerate().map(option).collect())
}

/// The options of a noul: false, then true.
pub fn noul(criteria: &Value, labels: Option<&Value>) -> Checked<Vec<QuestionOption>> {
    let mut said: BTreeMap<bool, &Value> = BTreeMap::new();
    match criteria {
        Value::Null => {}
        Value::Object(entries) => {
            for (key, about) in entries {
                let answer = match key.to_lowercase().as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(QuestionFault::Criterion { found: key.clone() }),
                };
                if said.insert(answer, about).is_some() {
                    return Err(QuestionFault::CriterionTwice { found: key.clone() });
                }
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let expected = "an object with descriptions of \"true\" and \"false\", or none";
            return Err(QuestionFault::Criteria { found: found(criteria), expected });
        }
    }
    let [no, yes] = noul_labels(labels)?;
    let option = |answer: bool, label: String, otherwise: &str| {
        let about = said.get(&answer).filter(|about| !is_silent(about));
        let about = about.map_or(otherwise.into(), |about| render::text(about));
        QuestionOption { label: answer.into(), text: format!("{label}: {about}") }
    };
    Ok(vec![option(false, no, "no, the statement does not hold"), option(true, yes, "yes, the statement holds")])
}

/// What false and true are called.
fn noul_labels(labels: Option<&Value>) -> Checked<[String; 2]> {
    let Some(given) = labels.filter(|labels| !labels.is_null()) else { return Ok(["false".into(), "true".into()]) };
    let of = |key: &str| Some(render::stripped(given.get(key)?.as_str()?)).filter(|label| !label.is_empty());
    match (of("false"), of("true"), given.as_object().map(Map::len)) {
        (Some(no), Some(yes), Some(2)) if no != yes => Ok([no.into(), yes.into()]),
        _ => Err(QuestionFault::Labels { found: shown(given) }),
    }
}
