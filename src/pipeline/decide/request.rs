//! Requests: what is asked, as files of JSON have it.

use crate::files;
use crate::json;
use crate::models::section;
use serde_json::{Map, Value};
use std::io;
use std::path::{Path, PathBuf};

/// A state and questions about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What it is called in the result; none for its number.
    pub name: Option<String>,
    /// What the questions are about: a text, an object, or a list whose newest entry is its last.
    pub state: Value,
    /// Questions by id, in the order in which they are answered.
    pub questions: Map<String, Value>,
}

/// Why requests cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum RequestError {
    #[error("{} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is no JSON", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("{}: {place} is {found}, expected {expected}", path.display())]
    Form { path: PathBuf, place: String, found: String, expected: &'static str },
    #[error("{}: {place} has an entry {key:?}, expected name, state and questions", path.display())]
    Entry { path: PathBuf, place: String, key: String },
    #[error("{}: {place} has no {key}", path.display())]
    Missing { path: PathBuf, place: String, key: &'static str },
    #[error("{} has no request", path.display())]
    None { path: PathBuf },
}

const KEYS: [&str; 3] = ["name", "state", "questions"];

impl Request {
    /// The requests of a file: one, or a list.
    ///
    /// # Errors
    /// It cannot be read, is no JSON, or has entries that no request has.
    pub fn read(path: &Path) -> Result<Vec<Request>, RequestError> {
        let bytes =
            files::read(path, files::TEXT_MAX).map_err(|source| RequestError::Io { path: path.into(), source })?;
        let value = json::read(&bytes).map_err(|source| RequestError::Json { path: path.into(), source })?;
        let requests = match value {
            Value::Array(list) => {
                let one = |(index, value)| Self::of(path, format!("request {index}"), value);
                list.into_iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?
            }
            one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                vec![Self::of(path, "the request".into(), one)?]
            }
        };
        if requests.is_empty() { Err(RequestError::None { path: path.into() }) } else { Ok(requests) }
    }

    fn of(path: &Path, place: String, value: Value) -> Result<Request, RequestError> {
        let form = |place: String, found: &Value, expected| {
            let found = section::kind(found);
            RequestError::Form { path: path.into(), place, found, expected }
        };
        let Value::Object(mut entries) = value else {
            return Err(form(place, &value, "an object of state and questions"));
        };
        if let Some(key) = entries.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(RequestError::Entry { path: path.into(), place, key: key.clone() });
        }
        let name = match entries.remove("name") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(other) => return Err(form(format!("name of {place}"), &other, "a text")),
        };
        let missing = |key| RequestError::Missing { path: path.into(), place: place.clone(), key };
        let state = entries.remove("state").ok_or_else(|| missing("state"))?;
        let questions = match entries.remove("questions").ok_or_else(|| missing("questions"))? {
            Value::Object(questions) => questions,
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                return Err(form(format!("questions of {place}"), &other, "an object of questions by id"));
            }
        };
        Ok(Request { name, state, questions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Vec<Request>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.json");
        fs_err::write(&path, text).unwrap();
        Request::read(&path).map_err(|e| e.to_string().replace(dir.path().to_str().unwrap(), ""))
    }

    #[test]
    fn one_or_a_list() {
        let questions = json!({ "b": { "type": "noul" }, "a": 1 });
        let one = json!({ "state": "s", "questions": questions });
        let found = read(&one.to_string()).unwrap();
        assert_eq!((found.len(), &found[0].state, &found[0].name), (1, &json!("s"), &None));
        assert_eq!(found[0].questions.keys().collect::<Vec<_>>(), ["b", "a"]);
        let named = json!({ "name": "n", "state": [1], "questions": {} });
        assert_eq!(read(&json!([one, named]).to_string()).unwrap()[1].name.as_deref(), Some("n"));
    }

    #[test]
    fn what_is_no_request() {
        let told = |text: &str| read(text).unwrap_err();
        insta::assert_snapshot!(told("{"), @"/requests.json is no JSON");
        insta::assert_snapshot!(told("3"), @"/requests.json: the request is 3, expected an object of state and questions");
        insta::assert_snapshot!(told("[]"), @"/requests.json has no request");
        insta::assert_snapshot!(told("{\"state\": 1}"), @"/requests.json: the request has no questions");
        insta::assert_snapshot!(told("{\"questions\": {}}"), @"/requests.json: the request has no state");
        insta::assert_snapshot!(told("[{\"state\": 1, \"questions\": []}]"), @"/requests.json: questions of request 0 is a list of 0, expected an object of questions by id");
        insta::assert_snapshot!(told("{\"state\": 1, \"questions\": {}, \"name\": 3}"), @"/requests.json: name of the request is 3, expected a text");
        insta::assert_snapshot!(told("{\"state\": 1, \"questions\": {}, \"language\": \"de\"}"), @r#"/requests.json: the request has an entry "language", expected name, state and questions"#);
        insta::assert_snapshot!(told("{\"state\": 1, \"state\": 2, \"questions\": {}}"), @"/requests.json is no JSON");
    }
}
