//! `metadata.json` of Core AI bundles: entries that tools write in any order.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Its entries by key; strings as they are, other values as JSON.
///
/// # Errors
/// It is no JSON object.
pub(super) fn entries(bytes: &[u8]) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let text = |value: Value| value.as_str().map(String::from).unwrap_or_else(|| sorted(value).to_string());
    let entries: Map<String, Value> = serde_json::from_slice(bytes)?;
    Ok(entries.into_iter().map(|(key, value)| (key, text(value))).collect())
}

/// The same value with the keys of each object in order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries: BTreeMap<String, Value> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_count() {
        let one = entries(br#"{"b": {"y": 1, "x": [{"q": 1, "p": null}]}, "a": "text"}"#).unwrap();
        let two = entries(br#"{"a": "text", "b": {"x": [{"p": null, "q": 1}], "y": 1}}"#).unwrap();
        assert_eq!(one, two);
        assert_eq!(one["b"], r#"{"x":[{"p":null,"q":1}],"y":1}"#);
        assert!(entries(b"[]").is_err());
    }
}
