//! JSON as this tool takes it from others: no key may stand twice in an object. Level 0.
//!
//! The format's readers disagree on such objects (RFC 8259, section 4): the first value, the last, or both. A file that
//! means one thing here and another elsewhere is refused.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Reads JSON.
///
/// # Errors
/// It is none, or a key stands twice in an object: it is named, with its line.
pub fn read(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Unique>(bytes).map(|unique| unique.0)
}

/// A value without such an object.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(Any).map(Unique)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Map::new();
        while let Some((key, Unique(value))) = map.next_entry::<String, Unique>()? {
            if entries.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} is given twice")));
            }
            entries.insert(key, value);
        }
        Ok(entries.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_that_stand_twice() {
        let refused = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        insta::assert_snapshot!(refused(r#"{"a": 1, "b": {}, "a": 1}"#), @r#"key "a" is given twice at line 1 column 25"#);
        insta::assert_snapshot!(refused("{\"a\": [{\"b\": 1,\n\"\\u0062\": 2}]}"), @r#"key "b" is given twice at line 2 column 12"#);
        insta::assert_snapshot!(refused("{"), @"EOF while parsing an object at line 1 column 1");
        assert!(read(br#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}"#).is_ok(), "the same key of other objects");
        assert!(read("[".repeat(100_000).as_bytes()).is_err());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn all_else_is_read_as_elsewhere(value in any_value()) {
            let text = value.to_string();
            prop_assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
        }
    }
}
