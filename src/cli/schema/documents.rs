//! The JSON Schemas, draft 2020-12: a file for each, and how they are put together.
//!
//! A file refers to another, or to a part of one, as `#/$defs/NAME`: the root of each file is a definition by the name
//! of the file, and the `$defs` of all files are one pool. What is printed brings along the definitions it needs.

use super::commands::Command;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The schemas by name. One that is called as a command is of what the command prints with `--json`.
const SCHEMAS: &[(&str, &str)] = &[
    ("compile", include_str!("compile.json")),
    ("completions", include_str!("completions.json")),
    ("decide", include_str!("decide.json")),
    ("device_record", include_str!("device_record.json")),
    ("diff", include_str!("diff.json")),
    ("doctor", include_str!("doctor.json")),
    ("encoder", include_str!("encoder.json")),
    ("error", include_str!("error.json")),
    ("features", include_str!("features.json")),
    ("gate", include_str!("gate.json")),
    ("inspect", include_str!("inspect.json")),
    ("kit", include_str!("kit.json")),
    ("laya", include_str!("laya.json")),
    ("reader", include_str!("reader.json")),
    ("recipe", include_str!("../../../provenance/recipe.schema.json")),
    ("record", include_str!("../../../provenance/record.schema.json")),
    ("regions", include_str!("regions.json")),
    ("release", include_str!("release.json")),
    ("release_record", include_str!("release_record.json")),
    ("run", include_str!("run.json")),
    ("schema", include_str!("schema.json")),
    ("statement", include_str!("statement.json")),
    ("strip", include_str!("strip.json")),
    ("tools", include_str!("tools.json")),
    ("transcribe", include_str!("transcribe.json")),
    ("verify", include_str!("verify.json")),
];

/// Definitions that several files use.
const SHARED: (&str, &str) = ("shared", include_str!("shared.json"));

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const LOCAL: &str = "#/$defs/";

/// The names there are.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().copied().map(|(name, _)| name)
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

type Pool = BTreeMap<String, Value>;

/// Every schema by its name, each complete in itself.
pub(super) fn schemas(commands: &[Command]) -> Result<BTreeMap<String, Value>, DocumentError> {
    let pool = pool(SCHEMAS.iter().copied().chain([SHARED]))?;
    let is_command = |name: &str| commands.iter().any(|command| command.name == name);
    names().map(|name| Ok((name.to_string(), complete(name, is_command(name), pool.clone())?))).collect()
}

/// What the files define: their roots, by the files' names, and their `$defs`.
fn pool(files: impl Iterator<Item = (&'static str, &'static str)>) -> Result<Pool, DocumentError> {
    let mut pool = Pool::new();
    for (name, text) in files {
        let mut root = parsed(name, text)?;
        let definitions = match root.remove("$defs") {
            Some(Value::Object(definitions)) => definitions,
            Some(_) | None => Map::new(),
        };
        for (definition, body) in definitions.into_iter().chain([(name.to_string(), Value::Object(root))]) {
            if pool.insert(definition.clone(), body).is_some() {
                return Err(DocumentError::Twice { name, definition });
            }
        }
    }
    Ok(pool)
}

fn parsed(name: &'static str, text: &str) -> Result<Map<String, Value>, DocumentError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(file)) => Ok(file),
        Ok(_) => Err(DocumentError::Form { name, source: None }),
        Err(source) => Err(DocumentError::Form { name, source: Some(source) }),
    }
}

/// The schema of that name with all it refers to. A command prints its result or an error.
fn complete(name: &str, is_command: bool, mut pool: Pool) -> Result<Value, DocumentError> {
    let mut schema = Map::from_iter([("$schema".to_string(), json!(DIALECT))]);
    if is_command {
        schema.insert("title".into(), json!(format!("What `eg2-convert {name} --json` prints")));
        schema.insert("oneOf".into(), json!([{ "$ref": format!("{LOCAL}{name}") }, { "$ref": "#/$defs/error" }]));
    } else if let Some(Value::Object(body)) = pool.get(name) {
        schema.extend(body.clone());
    }
    let mut definitions = Pool::new();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(files: &[(&'static str, &'static str)], is_command: bool) -> Result<String, String> {
        let schema = pool(files.iter().copied()).and_then(|pool| complete(files[0].0, is_command, pool));
        schema.map(|schema| schema.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_schema_brings_what_it_refers_to_and_no_more() {
        let a = ("a", r##"{"$ref": "#/$defs/x", "$defs": {"x": {"items": {"$ref": "#/$defs/x"}}, "y": {}}}"##);
        insta::assert_snapshot!(printed(&[a], false).unwrap(), @r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","$ref":"#/$defs/x","$defs":{"x":{"items":{"$ref":"#/$defs/x"}}}}"##);
        let error = ("error", r##"{"$ref": "#/$defs/y"}"##);
        insta::assert_snapshot!(printed(&[a, error], true).unwrap(), @r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"What `eg2-convert a --json` prints","oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/error"}],"$defs":{"a":{"$ref":"#/$defs/x"},"error":{"$ref":"#/$defs/y"},"x":{"items":{"$ref":"#/$defs/x"}},"y":{}}}"##);
    }

    #[test]
    fn files_that_make_no_schema() {
        let of = |files: &[(&'static str, &'static str)]| printed(files, false).unwrap_err();
        insta::assert_snapshot!(of(&[("a", "[]")]), @"schema a is no JSON object");
        insta::assert_snapshot!(of(&[("a", "{")]), @"schema a is no JSON object");
        insta::assert_snapshot!(of(&[("a", "{}"), ("b", r#"{"$defs": {"a": {}}}"#)]), @"schema b defines a, which another file defines too");
        insta::assert_snapshot!(of(&[("a", r##"{"$ref": "#/$defs/b"}"##)]), @"schema a refers to #/$defs/b, which no file defines");
    }

    #[test]
    fn every_definition_is_used() {
        let pool = pool(SCHEMAS.iter().copied().chain([SHARED])).unwrap();
        let used: BTreeSet<String> = pool.values().flat_map(references).collect();
        let roots: Vec<&str> = names().chain([SHARED.0]).collect();
        let unused = pool.keys().filter(|d| !roots.contains(&d.as_str()) && !used.contains(&format!("{LOCAL}{d}")));
        assert_eq!(unused.collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
