//! `stats.json`: what the compiler counted in the graph it was given. It tells nothing of where the graph runs.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Counts of a graph. The file lists them in no order; here they are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Operations by name.
    pub operations: BTreeMap<String, u64>,
    /// Stored elements by type.
    pub storage: BTreeMap<String, u64>,
    /// Types that are computed with.
    pub compute: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    operation_distribution: Vec<Counted>,
    #[serde(default)]
    storage_types: Vec<Counted>,
    #[serde(default)]
    compute_types: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Counted {
    name: String,
    count: u64,
}

impl Stats {
    /// Reads the file's bytes.
    ///
    /// # Errors
    /// It is no JSON of that form.
    pub(super) fn parse(bytes: &[u8]) -> Result<Stats, serde_json::Error> {
        let raw: Raw = serde_json::from_slice(bytes)?;
        let (operations, storage) = (sorted(raw.operation_distribution), sorted(raw.storage_types));
        Ok(Stats { operations, storage, compute: raw.compute_types })
    }
}

/// By name; a name given twice has the sum.
fn sorted(list: Vec<Counted>) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for Counted { name, count } in list {
        let total = counts.entry(name).or_default();
        *total = total.saturating_add(count);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_in_the_file_does_not_count() {
        let one =
            r#"{"operationDistribution":[{"count":2,"name":"mul"},{"name":"add","count":1}],"computeTypes":["b","a"]}"#;
        let two =
            r#"{"computeTypes":["a","b"],"operationDistribution":[{"name":"add","count":1},{"name":"mul","count":2}]}"#;
        let stats = Stats::parse(one.as_bytes()).unwrap();
        assert_eq!(stats, Stats::parse(two.as_bytes()).unwrap());
        assert_eq!(stats.operations.into_iter().collect::<Vec<_>>(), [("add".into(), 1), ("mul".into(), 2)]);
    }

    #[test]
    fn other_forms_are_refused() {
        for text in
            ["", r#"{"operationDistribution":[{"name":"mul"}]}"#, r#"{"storageTypes":[{"name":"a","count":-1}]}"#]
        {
            assert!(Stats::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
