//! The JSON Schemas, draft 2020-12: a file for each, and how they are put together.
//!
//! A file refers to another, or to a part of one, as `#/$defs/NAME`: the root of each file is a definition by the file's
//! name, and the `$defs` of all files are one pool. What is printed brings the definitions it needs along.

use super::commands::Command;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The schemas by name. One that is called as a command is of what the command prints with `--json`.
const SCHEMAS: [(&str, &str); 17] = [
    ("compile", include_str!("compile.json")),
    ("completions", include_str!("completions.json")),
    ("diff", include_str!("diff.json")),
    ("doctor", include_str!("doctor.json")),
    ("encoder", include_str!("encoder.json")),
    ("error", include_str!("error.json")),
    ("features", include_str!("features.json")),
    ("gate", include_str!("gate.json")),
    ("inspect", include_str!("inspect.json")),
    ("reader", include_str!("reader.json")),
    ("record", include_str!("../../../provenance/record.schema.json")),
    ("regions", include_str!("regions.json")),
    ("run", include_str!("run.json")),
    ("schema", include_str!("schema.json")),
    ("strip", include_str!("strip.json")),
    ("tools", include_str!("tools.json")),
    ("transcribe", include_str!("transcribe.json")),
];

/// Definitions that several files use.
const SHARED: &str = include_str!("shared.json");

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const LOCAL: &str = "#/$defs/";

/// The names there are.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SCHEMAS.into_iter().map(|(name, _)| name)
}

/// Why the files make no schemas, which a test finds before a user does.
#[derive(Debug, thiserror::Error)]
pub(super) enum DocumentError {
    #[error("schema {name} is no JSON object")]
    Form { name: &'static str, source: Option<serde_json::Error> },
    #[error("schema {name} defines {definition}, which another file defines too")]
    Twice { name: &'static str, definition: String },
    #[error("schema {name} refers to {reference}, which no file defines")]
    Absent { name: String, reference: String },
}

/// Every schema by its name, each complete in itself.
pub(super) fn schemas(commands: &[Command]) -> Result<BTreeMap<String, Value>, DocumentError> {
    let mut pool = BTreeMap::new();
    for (name, text) in SCHEMAS.into_iter().chain([("shared", SHARED)]) {
        let mut file = parsed(name, text)?;
        let definitions = file.remove("$defs");
        let own = (name != "shared").then(|| (name.to_string(), Value::Object(file)));
        let inner = definitions.as_ref().and_then(Value::as_object).into_iter().flatten();
        for (definition, body) in inner.map(|(name, body)| (name.clone(), body.clone())).chain(own) {
            if pool.insert(definition.clone(), body).is_some() {
                return Err(DocumentError::Twice { name, definition });
            }
        }
    }
    let is_command = |name: &str| commands.iter().any(|command| command.name == name);
    names().map(|name| Ok((name.to_string(), complete(name, is_command(name), &mut pool.clone())?))).collect()
}

fn parsed(name: &'static str, text: &str) -> Result<Map<String, Value>, DocumentError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(file)) => Ok(file),
        Ok(_) => Err(DocumentError::Form { name, source: None }),
        Err(source) => Err(DocumentError::Form { name, source: Some(source) }),
    }
}

/// The schema of that name with all it refers to. A command prints its result or an error.
fn complete(name: &str, is_command: bool, pool: &mut BTreeMap<String, Value>) -> Result<Value, DocumentError> {
    let mut schema = Map::from_iter([("$schema".to_string(), json!(DIALECT))]);
    if is_command {
        schema.insert("title".into(), json!(format!("What `eg2-convert {name} --json` prints")));
        schema.insert("oneOf".into(), json!([{ "$ref": format!("{LOCAL}{name}") }, { "$ref": "#/$defs/error" }]));
    } else if let Some(Value::Object(body)) = pool.get(name) {
        schema.extend(body.clone());
    }
    let mut definitions = BTreeMap::new();
    let mut wanted = references(&Value::Object(schema.clone()));
    while let Some(reference) = wanted.pop_first() {
        let found = reference.strip_prefix(LOCAL).and_then(|definition| Some((definition, pool.remove(definition)?)));
        if let Some((definition, body)) = found {
            wanted.extend(references(&body));
            definitions.insert(definition.to_string(), body);
        } else if !reference.strip_prefix(LOCAL).is_some_and(|definition| definitions.contains_key(definition)) {
            return Err(DocumentError::Absent { name: name.to_string(), reference });
        }
    }
    if !definitions.is_empty() {
        schema.insert("$defs".into(), json!(definitions));
    }
    Ok(Value::Object(schema))
}

/// All that a schema refers to.
fn references(schema: &Value) -> BTreeSet<String> {
    match schema {
        Value::Object(object) => {
            let own = object.get("$ref").and_then(Value::as_str).map(str::to_string);
            object.values().flat_map(references).chain(own).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => BTreeSet::new(),
    }
}
