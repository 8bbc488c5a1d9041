//! Questions as requests state them: `{"type", "instructions", "criteria", "labels", "option_order"}`.
//!
//! A question that was parsed has 1 to [`SLOTS`] options, each with a text and a key of its own, and an order that is a
//! permutation of them.

use super::{options, render};
use crate::models::laya::SLOTS;
use crate::models::section;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// What kind of answer a question wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionType {
    /// One of several labels.
    Choice,
    /// A level, counted from 0.
    Score,
    /// How true a statement is.
    Noul,
}

impl QuestionType {
    /// Every type; a type's place is its row in `type_emb.weight`.
    pub const ALL: [QuestionType; 3] = [QuestionType::Choice, QuestionType::Score, QuestionType::Noul];

    /// The row of the type's vector.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word that requests and prompts have for it.
    pub const fn name(self) -> &'static str {
        match self {
            QuestionType::Choice => "choice",
            QuestionType::Score => "score",
            QuestionType::Noul => "noul",
        }
    }
}

impl fmt::Display for QuestionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One option of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionOption {
    /// What an answer calls it: a choice's label as it was given, a level's text, or false and true.
    pub label: Value,
    /// The text the model reads.
    pub text: String,
}

impl QuestionOption {
    /// The label as a key of a JSON object.
    pub fn key(&self) -> String {
        render::text(&self.label)
    }
}

/// A question that can be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    id: String,
    kind: QuestionType,
    instructions: String,
    options: Vec<QuestionOption>,
    order: Option<Vec<usize>>,
}

/// A question that cannot be asked, by its id.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("question {id:?} {fault}")]
pub struct QuestionError {
    /// Its id.
    pub id: String,
    /// What is wrong.
    pub fault: QuestionFault,
}

/// What is wrong with a question.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each is")]
pub enum QuestionFault {
    #[error("has a blank id, expected some text")]
    BlankId,
    #[error("is {found}, expected an object with type, instructions and criteria")]
    NoObject { found: String },
    #[error("has type {found}, expected \"choice\", \"score\" or \"noul\"")]
    Type { found: String },
    #[error("has no instructions, expected the text to answer")]
    NoInstructions,
    #[error("has criteria that are {found}, expected {expected}")]
    Criteria { found: String, expected: &'static str },
    #[error("has no options, expected 1 to {SLOTS} criteria")]
    NoOptions,
    #[error("has {found} options, expected at most {SLOTS}")]
    TooMany { found: usize },
    #[error("has label {index} that is {found}, expected a text, a number, true or false")]
    Label { index: usize, found: String },
    #[error("has label {index} ({label}) that repeats label {first}; labels are the keys of the answer")]
    Repeated { index: usize, first: usize, label: String },
    #[error("has level {index} that is null, expected its description")]
    NullLevel { index: usize },
    #[error("has criteria for {found:?}, expected only \"true\" and \"false\"")]
    Criterion { found: String },
    #[error("has criteria for {found:?} twice, in other letters")]
    CriterionTwice { found: String },
    #[error("has labels, which only a noul question takes")]
    LabelsOf,
    #[error("has labels {found}, expected two texts that differ, by the keys \"false\" and \"true\"")]
    Labels { found: String },
    #[error("has option_order {found}, expected each of 0 to {} once", .options - 1)]
    Order { found: String, options: usize },
}

/// Longest piece of a value that a message shows, in characters.
const SHOWN: usize = 60;

/// `value` as JSON, its beginning where it is long.
pub(super) fn shown(value: &Value) -> String {
    let text = render::json(value);
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}..", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// What `value` is, for messages.
pub(super) fn found(value: &Value) -> String {
    if value.is_array() || value.is_object() { section::kind(value) } else { shown(value) }
}

impl Question {
    /// The question `definition` of that id.
    ///
    /// # Errors
    /// It cannot be asked; see [`QuestionFault`].
    pub fn parse(id: &str, definition: &Value) -> Result<Question, QuestionError> {
        parse(id, definition).map_err(|fault| QuestionError { id: id.into(), fault })
    }

    /// The questions of an object of definitions by id, in its order.
    ///
    /// # Errors
    /// One cannot be asked.
    pub fn parse_all(definitions: &Map<String, Value>) -> Result<Vec<Question>, QuestionError> {
        definitions.iter().map(|(id, definition)| Question::parse(id, definition)).collect()
    }

    /// Its name in the request.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What kind of answer it wants.
    pub fn kind(&self) -> QuestionType {
        self.kind
    }

    /// What is asked.
    pub fn instructions(&self) -> &str {
        &self.instructions
    }

    /// The options as the request has them; a noul's are false, then true.
    pub fn options(&self) -> &[QuestionOption] {
        &self.options
    }

    /// The options as the model sees them.
    pub fn shown_options(&self) -> Vec<&QuestionOption> {
        match &self.order {
            Some(order) => order.iter().filter_map(|option| self.options.get(*option)).collect(),
            None => self.options.iter().collect(),
        }
    }

    /// Values by slot, put by option: the request's order from the model's.
    pub fn by_option(&self, slots: &[f32]) -> Vec<f32> {
        let mut values = slots.to_vec();
        for (slot, option) in self.order.iter().flatten().enumerate() {
            if let (Some(to), Some(from)) = (values.get_mut(*option), slots.get(slot)) {
                *to = *from;
            }
        }
        values
    }
}

pub(super) type Checked<T> = Result<T, QuestionFault>;

fn parse(id: &str, definition: &Value) -> Checked<Question> {
    if render::stripped(id).is_empty() {
        return Err(QuestionFault::BlankId);
    }
    let Value::Object(definition) = definition else {
        return Err(QuestionFault::NoObject { found: found(definition) });
    };
    let kind = question_type(definition.get("type"))?;
    let instructions = instructions(definition.get("instructions"))?;
    let criteria = definition.get("criteria").unwrap_or(&Value::Null);
    let labels = definition.get("labels");
    if labels.is_some() && kind != QuestionType::Noul {
        return Err(QuestionFault::LabelsOf);
    }
    let options = match kind {
        QuestionType::Choice => options::choice(criteria)?,
        QuestionType::Score => options::score(criteria)?,
        QuestionType::Noul => options::noul(criteria, labels)?,
    };
    match options.len() {
        0 => return Err(QuestionFault::NoOptions),
        1..=SLOTS => {}
        found => return Err(QuestionFault::TooMany { found }),
    }
    let order = definition.get("option_order").map(|order| permutation(order, options.len())).transpose()?;
    Ok(Question { id: id.into(), kind, instructions, options, order })
}

fn question_type(value: Option<&Value>) -> Checked<QuestionType> {
    let named = QuestionType::ALL.into_iter().find(|kind| value.and_then(Value::as_str) == Some(kind.name()));
    named.ok_or_else(|| QuestionFault::Type { found: value.map_or("missing".into(), shown) })
}

fn instructions(value: Option<&Value>) -> Checked<String> {
    let blank = match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => render::stripped(text).is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(entries)) => entries.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => false,
    };
    match value {
        Some(value) if !blank => Ok(render::text(value)),
        Some(_) | None => Err(QuestionFault::NoInstructions),
    }
}

fn permutation(value: &Value, options: usize) -> Checked<Vec<usize>> {
    let index = |entry: &Value| usize::try_from(entry.as_u64()?).ok().filter(|index| *index < options);
    let order: Option<Vec<usize>> = value.as_array().and_then(|entries| entries.iter().map(index).collect());
    order
        .filter(|order| order.len() == options && order.iter().collect::<BTreeSet<_>>().len() == options)
        .ok_or_else(|| QuestionFault::Order { found: shown(value), options })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn texts(definition: Value) -> Vec<String> {
        let question = Question::parse("q", &definition).unwrap();
        question.shown_options().into_iter().map(|option| option.text.clone()).collect()
    }

    fn refused(definition: Value) -> String {
        Question::parse("q", &definition).unwrap_err().to_string()
    }

    #[test]
    fn option_texts() {
        let choice = |criteria: Value| json!({"type": "choice", "instructions": "i", "criteria": criteria});
        let score = |criteria: Value| json!({"type": "score", "instructions": "i", "criteria": criteria});
        let noul = |criteria: Value| json!({"type": "noul", "instructions": "i", "criteria": criteria});
        let cases = [
            (choice(json!(["a", 2, 2.5, true])), vec!["a", "2", "2.5", "True"]),
            (
                choice(json!({"a": null, "b": "", "c": 0, "d": {"x": [1.0]}})),
                vec!["a", "b", "c: 0", "d: {\"x\": [1.0]}"],
            ),
            (choice(json!([""])), vec![""]),
            (score(json!(["low", 2, ""])), vec!["level 0: low", "level 1: 2", "level 2: "]),
            (noul(json!(null)), vec!["false: no, the statement does not hold", "true: yes, the statement holds"]),
            (noul(json!({"TRUE": 1, "false": ""})), vec!["false: no, the statement does not hold", "true: 1"]),
        ];
        for (definition, want) in cases {
            assert_eq!(texts(definition), want);
        }
        let labelled = json!({"type": "noul", "instructions": 1, "labels": {"true": " ja ", "false": "nein"}});
        assert_eq!(texts(labelled), ["nein: no, the statement does not hold", "ja: yes, the statement holds"]);
        let turned =
            json!({"type": "choice", "instructions": "i", "criteria": ["a", "b", "c"], "option_order": [2, 0, 1]});
        assert_eq!(texts(turned.clone()), ["c", "a", "b"]);
        let question = Question::parse("q", &turned).unwrap();
        assert_eq!(question.by_option(&[0.5, 0.25, 0.125]), [0.25, 0.125, 0.5]);
    }

    #[test]
    fn refused_by_name() {
        let choice = |criteria: Value| json!({"type": "choice", "instructions": "i", "criteria": criteria});
        let with = |key: &str, value: Value| {
            let mut definition = choice(json!(["a", "b"]));
            definition[key] = value;
            definition
        };
        let noul = |key: &str, value: Value| json!({"type": "noul", "instructions": "i", key: value});
        let labels: Vec<String> = (0..33).map(|i| i.to_string()).collect();
        let all = [
            refused(json!(["type"])),
            refused(with("type", json!("bool"))),
            refused(with("type", json!("x".repeat(100)))),
            refused(json!({})),
            refused(with("instructions", json!(null))),
            refused(with("instructions", json!(" \u{1c}"))),
            refused(with("instructions", json!({}))),
            refused(choice(json!("a"))),
            refused(choice(json!([]))),
            refused(choice(json!(labels))),
            refused(choice(json!(["a", null]))),
            refused(choice(json!([["a"]]))),
            refused(choice(json!(["a", "b", "a"]))),
            refused(choice(json!([1, 1.0]))),
            refused(choice(json!(["x", 1, true]))),
            refused(choice(json!([1, "1"]))),
            refused(choice(json!([true, "true"]))),
            refused(with("labels", json!(null))),
            refused(with("option_order", json!([0]))),
            refused(with("option_order", json!([0, 0]))),
            refused(with("option_order", json!([0, 2]))),
            refused(with("option_order", json!([0, 1.0]))),
            refused(with("option_order", json!(null))),
            refused(json!({"type": "score", "instructions": "i", "criteria": {"a": 1}})),
            refused(json!({"type": "score", "instructions": "i", "criteria": ["a", null]})),
            refused(noul("criteria", json!(["a"]))),
            refused(noul("criteria", json!({"yes": "a"}))),
            refused(noul("criteria", json!({"true": "a", "True": "b"}))),
            refused(noul("labels", json!({"true": "a", "false": " a"}))),
            refused(noul("labels", json!({"true": "a"}))),
            refused(noul("labels", json!({"true": "a", "false": "b", "c": "d"}))),
            Question::parse("\u{1f} ", &choice(json!(["a"]))).unwrap_err().to_string(),
        ];
        insta::assert_snapshot!(all.join("\n"), @r#"
        question "q" is a list of 1, expected an object with type, instructions and criteria
        question "q" has type "bool", expected "choice", "score" or "noul"
        question "q" has type "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.., expected "choice", "score" or "noul"
        question "q" has type missing, expected "choice", "score" or "noul"
        question "q" has no instructions, expected the text to answer
        question "q" has no instructions, expected the text to answer
        question "q" has no instructions, expected the text to answer
        question "q" has criteria that are "a", expected an object of label and description, or a list of labels
        question "q" has no options, expected 1 to 32 criteria
        question "q" has 33 options, expected at most 32
        question "q" has label 1 that is null, expected a text, a number, true or false
        question "q" has label 0 that is a list of 1, expected a text, a number, true or false
        question "q" has label 2 ("a") that repeats label 0; labels are the keys of the answer
        question "q" has label 1 (1.0) that repeats label 0; labels are the keys of the answer
        question "q" has label 2 (true) that repeats label 1; labels are the keys of the answer
        question "q" has label 1 ("1") that repeats label 0; labels are the keys of the answer
        question "q" has label 1 ("true") that repeats label 0; labels are the keys of the answer
        question "q" has labels, which only a noul question takes
        question "q" has option_order [0], expected each of 0 to 1 once
        question "q" has option_order [0, 0], expected each of 0 to 1 once
        question "q" has option_order [0, 2], expected each of 0 to 1 once
        question "q" has option_order [0, 1.0], expected each of 0 to 1 once
        question "q" has option_order null, expected each of 0 to 1 once
        question "q" has criteria that are an object of 1, expected a list of descriptions, of level 0 first
        question "q" has level 1 that is null, expected its description
        question "q" has criteria that are a list of 1, expected an object with descriptions of "true" and "false", or none
        question "q" has criteria for "yes", expected only "true" and "false"
        question "q" has criteria for "True" twice, in other letters
        question "q" has labels {"true": "a", "false": " a"}, expected two texts that differ, by the keys "false" and "true"
        question "q" has labels {"true": "a"}, expected two texts that differ, by the keys "false" and "true"
        question "q" has labels {"true": "a", "false": "b", "c": "d"}, expected two texts that differ, by the keys "false" and "true"
        question "\u{1f} " has a blank id, expected some text
        "#);
        assert!(Question::parse("q", &choice(json!(&labels[1..]))).is_ok());
        let apart = json!([9007199254740993u64, 9007199254740992u64, 0.5, -1, "", 1e300, u64::MAX]);
        assert!(Question::parse("q", &choice(apart)).is_ok());
    }

    /// Values of every kind, a question's own words among them.
    fn any_value() -> impl Strategy<Value = Value> {
        const WORDS: &[&str] = &["choice", "noul", "true", "false", "True", "", " "];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-1i64..4).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(WORDS).prop_map(Value::from),
            ".{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 60, 40, |inner| {
            let key = prop_oneof![prop::sample::select(WORDS).prop_map(String::from), ".{0,4}"];
            let object = prop::collection::btree_map(key, inner.clone(), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..36).prop_map(Value::from),
                object.prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_asked_has_its_keys_or_a_reason(
            kind in prop::sample::select(vec!["choice", "score", "noul"]),
            given in prop::collection::btree_map(
                prop::sample::select(vec!["instructions", "criteria", "criteria", "labels", "option_order"]),
                any_value(),
                0..4,
            ),
        ) {
            let mut definition = json!({"type": kind, "instructions": "i"});
            for (key, value) in given {
                definition[key] = value;
            }
            if let Ok(question) = Question::parse("q", &definition) {
                let options = question.options();
                prop_assert!((1..=SLOTS).contains(&options.len()));
                prop_assert_eq!(question.shown_options().len(), options.len());
                let keys: BTreeSet<String> = options.iter().map(QuestionOption::key).collect();
                prop_assert!(question.kind() == QuestionType::Score || keys.len() == options.len());
            }
        }

        #[test]
        fn an_order_is_undone(order in Just((0..7u32).collect::<Vec<_>>()).prop_shuffle()) {
            let definition = json!({"type": "score", "instructions": "i", "criteria": vec!["a"; 7], "option_order": order});
            let question = Question::parse("q", &definition).unwrap();
            let slots: Vec<f32> = order.iter().map(|option| *option as f32).collect();
            prop_assert_eq!(question.by_option(&slots), (0..7).map(|i| i as f32).collect::<Vec<_>>());
        }
    }
}
