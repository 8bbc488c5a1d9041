//! Question sets: questions on texts as JSON, with the tokens that the reference lays out and what it makes of them.
//!
//! ```text
//! { "source_weights_sha256": DIGEST,
//!   "cases": [{ "name": TEXT, "state": ANY, "questions": { ID: DEFINITION },
//!               "items": [{ "ids": [..], "markers": [..], "qtype": 0 }], "logits": [[..]], "action_logits": [[..]] }] }
//! ```
//!
//! `items`, `logits` and `action_logits` have an entry for each question, in the order of the questions; `action_logits` may
//! be absent. Other keys are left alone.

use super::evidence::{Evidence, EvidenceError, EvidenceKind};
use crate::digest::Digest;
use crate::files;
use crate::gate::laya::Reference;
use crate::json;
use crate::models::laya::SLOTS;
use crate::models::laya::host::{HostError, QuestionType};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A set and where it is from.
#[derive(Debug)]
pub struct QuestionSet {
    /// The file.
    pub path: PathBuf,
    /// Digest of the weights that the reference had; none where it does not tell.
    pub sources: Vec<Digest>,
    /// Each text with its questions.
    pub cases: Vec<SetCase>,
    /// The file as it was read.
    pub evidence: Evidence,
}

/// A text and what is asked of it.
#[derive(Debug)]
pub struct SetCase {
    /// Its name.
    pub name: String,
    /// The text, or what is written as one.
    pub state: Value,
    /// The questions by id, to be parsed together.
    pub definitions: Map<String, Value>,
    /// What the reference makes of each question, in their order.
    pub expected: Vec<Expected>,
}

/// What the reference makes of a question.
#[derive(Debug)]
pub struct Expected {
    /// Tokens.
    pub ids: Vec<u32>,
    /// Position of each option's marker.
    pub markers: Vec<usize>,
    /// What kind of answer is wanted.
    pub kind: QuestionType,
    /// Its outputs.
    pub reference: Reference,
}

/// Why question sets cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum QuestionSetError {
    #[error("question set {} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("question set {} is not of the form that is read", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("question set {} has no case", path.display())]
    Empty { path: PathBuf },
    #[error("question set {}: case {case} has no question", path.display())]
    NoQuestion { path: PathBuf, case: String },
    #[error("question set {}: case {case} is there twice", path.display())]
    Twice { path: PathBuf, case: String },
    #[error("question set {}: case {case} has {found} {key}, expected {expected}, one for each question", path.display())]
    Count { path: PathBuf, case: String, key: &'static str, found: usize, expected: usize },
    #[error("question set {}: {key} of question {question} of case {case} is {found}, expected {expected}", path.display())]
    Entry { path: PathBuf, case: String, question: usize, key: &'static str, found: String, expected: String },
    #[error("question set {}: case {case} cannot be asked", path.display())]
    Case {
        path: PathBuf,
        case: String,
        #[source]
        source: Box<HostError>,
    },
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
}

#[derive(Deserialize)]
#[serde(expecting = "an object with cases")]
struct Form {
    source_weights_sha256: Option<Digest>,
    cases: Vec<FormCase>,
}

#[derive(Deserialize)]
#[serde(expecting = "a case, an object")]
struct FormCase {
    name: String,
    state: Value,
    questions: Map<String, Value>,
    items: Vec<FormItem>,
    logits: Vec<Vec<f32>>,
    action_logits: Option<Vec<Vec<f32>>>,
}

#[derive(Deserialize)]
#[serde(expecting = "a question's tokens, an object")]
struct FormItem {
    ids: Vec<u32>,
    markers: Vec<usize>,
    qtype: usize,
}

/// Reads the set at `path`, of a model with so many `actions`.
///
/// # Errors
/// It cannot be read, or a case is not whole.
pub fn read(path: &Path, actions: usize) -> Result<QuestionSet, QuestionSetError> {
    let (form, evidence) = Evidence::of(EvidenceKind::Questions, path, || {
        let io = |source| QuestionSetError::Io { path: path.into(), source };
        let bytes = files::read(path, files::TEXT_MAX).map_err(io)?;
        let form = json::read(&bytes).and_then(serde_json::from_value::<Form>);
        form.map_err(|source| QuestionSetError::Json { path: path.into(), source })
    })?;
    if form.cases.is_empty() {
        return Err(QuestionSetError::Empty { path: path.into() });
    }
    let mut names = BTreeSet::new();
    if let Some(again) = form.cases.iter().find(|case| !names.insert(case.name.as_str())) {
        return Err(QuestionSetError::Twice { path: path.into(), case: again.name.clone() });
    }
    let cases = form.cases.into_iter().map(|case| of(path, case, actions)).collect::<Result<_, _>>()?;
    let sources = form.source_weights_sha256.into_iter().collect();
    Ok(QuestionSet { path: path.into(), sources, cases, evidence })
}

fn of(path: &Path, form: FormCase, actions: usize) -> Result<SetCase, QuestionSetError> {
    let FormCase { name, state, questions, items, logits, action_logits } = form;
    let expected = questions.len();
    if expected == 0 {
        return Err(QuestionSetError::NoQuestion { path: path.into(), case: name });
    }
    let told = action_logits.as_ref().map(Vec::len);
    for (key, found) in [("items", Some(items.len())), ("logits", Some(logits.len())), ("action_logits", told)] {
        if let Some(found) = found.filter(|found| *found != expected) {
            return Err(QuestionSetError::Count { path: path.into(), case: name, key, found, expected });
        }
    }
    let mut action_logits = action_logits.map(Vec::into_iter);
    let mut all = Vec::new();
    for (question, (item, logits)) in items.into_iter().zip(logits).enumerate() {
        let action = action_logits.as_mut().and_then(Iterator::next);
        let checked = one(item, logits, action, actions);
        all.push(checked.map_err(|Bad { key, found, expected }| QuestionSetError::Entry {
            path: path.into(),
            case: name.clone(),
            question,
            key,
            found,
            expected,
        })?);
    }
    Ok(SetCase { name, state, definitions: questions, expected: all })
}

/// An entry that no reference has.
struct Bad {
    key: &'static str,
    found: String,
    expected: String,
}

fn one(item: FormItem, logits: Vec<f32>, action: Option<Vec<f32>>, actions: usize) -> Result<Expected, Bad> {
    let bad = |key, found: String, expected: String| Err(Bad { key, found, expected });
    let FormItem { ids, markers, qtype } = item;
    let Some(kind) = QuestionType::ALL.get(qtype).copied() else {
        return bad("qtype", qtype.to_string(), "0 for choice, 1 for score or 2 for noul".into());
    };
    if ids.is_empty() {
        return bad("ids", "empty".into(), "tokens".into());
    }
    if !(1..=SLOTS).contains(&markers.len()) {
        return bad("markers", format!("a list of {}", markers.len()), format!("1 to {SLOTS} options"));
    }
    if let Some(marker) = markers.iter().find(|marker| **marker >= ids.len()) {
        return bad("markers", marker.to_string(), format!("positions below {}", ids.len()));
    }
    if logits.len() != markers.len() {
        return bad("logits", format!("a list of {}", logits.len()), format!("{}, one for each option", markers.len()));
    }
    if let Some(action) = action.as_ref().filter(|action| action.len() != actions) {
        return bad("action_logits", format!("a list of {}", action.len()), format!("{actions}, one for each action"));
    }
    for (key, values) in [("logits", Some(&logits)), ("action_logits", action.as_ref())] {
        if let Some(value) = values.into_iter().flatten().find(|value| !value.is_finite()) {
            return bad(key, value.to_string(), "finite numbers".into());
        }
    }
    Ok(Expected { ids, markers, kind, reference: Reference { logits, cls: None, action } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole() -> Value {
        json!({
            "source_weights_sha256": Digest::of(b"weights"),
            "made_by": "what is not read",
            "cases": [{
                "name": "a", "state": "text", "questions": { "q": { "type": "noul" } },
                "items": [{ "ids": [2, 5, 4, 7, 4, 1], "markers": [2, 4], "qtype": 2 }],
                "logits": [[0.5, -1]], "action_logits": [[1, 2, 3]],
            }],
        })
    }

    fn told(value: &Value) -> Result<QuestionSet, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set.json");
        fs_err::write(&path, value.to_string()).unwrap();
        let hide = |text: String| text.replace(dir.path().to_str().unwrap(), "");
        read(&path, 3).map_err(|e| {
            let source = std::error::Error::source(&e).map_or_else(String::new, |source| format!(": {source}"));
            hide(format!("{e}{source}"))
        })
    }

    #[test]
    fn a_set() {
        let set = told(&whole()).unwrap();
        assert_eq!(set.sources, [Digest::of(b"weights")]);
        let [case] = set.cases.as_slice() else { panic!() };
        let [expected] = case.expected.as_slice() else { panic!() };
        assert_eq!((expected.kind, expected.markers.as_slice()), (QuestionType::Noul, [2, 4].as_slice()));
        let reference = Reference { logits: vec![0.5, -1.0], cls: None, action: Some(vec![1.0, 2.0, 3.0]) };
        assert_eq!(expected.reference, reference);
        let mut silent = whole();
        silent["cases"][0].as_object_mut().unwrap().remove("action_logits");
        silent.as_object_mut().unwrap().remove("source_weights_sha256");
        let silent = told(&silent).unwrap();
        assert!(silent.sources.is_empty() && silent.cases[0].expected[0].reference.action.is_none());
    }

    #[test]
    fn what_is_no_set() {
        let with = |pointer: &str, value: Value| {
            let mut set = whole();
            *set.pointer_mut(pointer).unwrap() = value;
            told(&set).unwrap_err()
        };
        let all = [
            with("", json!([])),
            with("/cases", json!([])),
            with("/cases", json!([whole()["cases"][0], whole()["cases"][0]])),
            with("/cases/0/name", json!(1)),
            with("/source_weights_sha256", json!("ab")),
            with("/cases/0/questions", json!({})),
            with("/cases/0/items", json!([])),
            with("/cases/0/logits", json!([[0.5, 1], [2, 3]])),
            with("/cases/0/action_logits", json!([])),
            with("/cases/0/items/0/qtype", json!(3)),
            with("/cases/0/items/0/ids", json!([])),
            with("/cases/0/items/0/ids", json!([-1])),
            with("/cases/0/items/0/markers", json!([])),
            with("/cases/0/items/0/markers", json!(vec![0; 33])),
            with("/cases/0/items/0/markers", json!([2, 6])),
            with("/cases/0/logits/0", json!([1])),
            with("/cases/0/logits/0", json!([1, 1e39])),
            with("/cases/0/action_logits/0", json!([1, 2])),
            with("/cases/0/action_logits/0", json!([1, 2, "x"])),
        ];
        insta::assert_snapshot!(all.join("\n"), @r#"
        question set /set.json is not of the form that is read: invalid length 0, expected an object with cases
        question set /set.json has no case
        question set /set.json: case a is there twice
        question set /set.json is not of the form that is read: invalid type: integer `1`, expected a string
        question set /set.json is not of the form that is read: expected 64 hexadecimal digits
        question set /set.json: case a has no question
        question set /set.json: case a has 0 items, expected 1, one for each question
        question set /set.json: case a has 2 logits, expected 1, one for each question
        question set /set.json: case a has 0 action_logits, expected 1, one for each question
        question set /set.json: qtype of question 0 of case a is 3, expected 0 for choice, 1 for score or 2 for noul
        question set /set.json: ids of question 0 of case a is empty, expected tokens
        question set /set.json is not of the form that is read: invalid value: integer `-1`, expected u32
        question set /set.json: markers of question 0 of case a is a list of 0, expected 1 to 32 options
        question set /set.json: markers of question 0 of case a is a list of 33, expected 1 to 32 options
        question set /set.json: markers of question 0 of case a is 6, expected positions below 6
        question set /set.json: logits of question 0 of case a is a list of 1, expected 2, one for each option
        question set /set.json: logits of question 0 of case a is inf, expected finite numbers
        question set /set.json: action_logits of question 0 of case a is a list of 2, expected 3, one for each action
        question set /set.json is not of the form that is read: invalid type: string "x", expected f32
        "#);
        let absent = read(Path::new("absent.json"), 3).unwrap_err();
        insta::assert_snapshot!(absent, @"question set absent.json could not be read");
    }
}
