//! What the record says of a gate, against the recipe, the bundle and the gate's own rules: a record chooses neither its
//! checks nor what they are held to.

use super::claims::follows;
use super::fault::Fault;
use crate::gate::{ENCODER_CHECKS, Limits, READER_CHECKS, laya};
use crate::passes::Precision;
use crate::provenance::release::{Gate, GateCheck, Judged, Outcome, Parent, ReleaseRecord, Released};
use crate::recipe::{Model, Recipe};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Holds the gate of one bundle against all that it follows from.
pub fn check(bundle: &Released, record: &ReleaseRecord, recipe: Option<&Recipe>, faults: &mut Vec<Fault>) {
    let mut held = Held { bundle, record, faults };
    match &bundle.gate.judged {
        None => held.outcome("gate", bundle.gate.outcome, Outcome::NotRun),
        Some(judged) => held.judged(judged, recipe),
    }
}

/// The checks that a report on `model` has, run or not; some are there by its limits.
fn checks(model: &str, limits: Option<&Limits>) -> Vec<&'static str> {
    match model {
        "encoder" => ENCODER_CHECKS.to_vec(),
        laya::MODEL => laya::checks(limits.unwrap_or(&Limits::of(Precision::Fp16))),
        _ => READER_CHECKS.to_vec(),
    }
}

/// One bundle of the record.
struct Held<'a> {
    bundle: &'a Released,
    record: &'a ReleaseRecord,
    faults: &'a mut Vec<Fault>,
}

impl Held<'_> {
    fn follows(&mut self, field: impl Display, found: &Value, expected: &Value) {
        follows(format!("{}: gate.{field}", self.bundle.name), found, expected, self.faults);
    }

    fn outcome(&mut self, check: &str, said: Outcome, follows: Outcome) {
        if said != follows {
            let artefact = self.bundle.name.clone();
            self.faults.push(Fault::Check { artefact, check: check.into(), said, follows });
        }
    }

    fn judged(&mut self, judged: &Judged, recipe: Option<&Recipe>) {
        // The digest that was gated is the digest that ships.
        self.follows("judged.digest_root", &json!(judged.digest_root), &json!(self.bundle.digest_root));
        self.outcome("gate", self.bundle.gate.outcome, Gate::outcome_of(&judged.checks));
        let had: Vec<&str> = judged.checks.iter().map(|check| check.name.as_str()).collect();
        let limits = recipe.and_then(|recipe| self.limits(judged, recipe));
        let halves: &[&str] = if judged.body.is_some() { &["halves"] } else { &[] };
        let all = checks(&self.record.model, limits.as_ref());
        for name in all.iter().chain(&["source"]).chain(halves).filter(|name| !had.contains(*name)) {
            self.outcome(name, Outcome::Pass, Outcome::NotRun);
        }
        for name in had.iter().collect::<BTreeSet<_>>() {
            let times = had.iter().filter(|other| other == &name).count();
            self.follows(format_args!("{name}: times"), &json!(times), &json!(1));
        }
        if judged.evidence.is_empty() {
            self.follows("judged.evidence", &json!([]), &json!("what it was judged by"));
        }
        self.body(judged, recipe);
        if let Some(limits) = limits {
            self.follows("judged.limits", &judged.limits, &json!(limits));
            for check in &judged.checks {
                self.check(check, &limits);
            }
        }
    }

    /// A front is judged with a body of its own release, and nothing else is.
    fn body(&mut self, judged: &Judged, recipe: Option<&Recipe>) {
        let found = judged.body.as_ref().map(|body| &body.name);
        match recipe.map(|recipe| &recipe.model) {
            Some(Model::Encoder { split_after: Some(_), .. }) => {
                let front = |other: &&Released| other.format == self.bundle.format && other.compiled_from.is_none();
                let mut halves = self.record.artefacts.iter().filter(front);
                // In the order they are authored in.
                let (first, second) = (halves.next(), halves.next());
                let body = second.filter(|_| first.is_some_and(|first| first.name == self.bundle.name));
                let parent = body.map(|body| Parent { name: body.name.clone(), digest_root: body.digest_root });
                let expected = parent.map_or(json!("judged with its front"), |parent| json!(parent));
                self.follows("judged.body", &json!(judged.body), &expected);
            }
            Some(Model::Encoder { split_after: None, .. } | Model::Reader { .. } | Model::Laya { .. }) => {
                self.follows("judged.body", &json!(found), &Value::Null);
            }
            None => {}
        }
    }

    fn check(&mut self, check: &GateCheck, limits: &Limits) {
        let name = &check.name;
        self.outcome(&format!("gate.{name}"), check.outcome, GateCheck::outcome_of(&check.measures));
        let Some(held) = limits.measures(name) else {
            return self.follows(name, &json!("a check"), &json!("no check of that name"));
        };
        if check.measures.is_empty() {
            return;
        }
        let found: Vec<&str> = check.measures.iter().map(|measure| measure.name.as_str()).collect();
        let expected: Vec<&str> = held.iter().map(|held| held.name).collect();
        self.follows(format_args!("{name}.measures"), &json!(found), &json!(expected));
        for measure in &check.measures {
            let Some(held) = held.iter().find(|held| held.name == measure.name) else { continue };
            let field = format!("{name}.{}", measure.name);
            self.follows(format_args!("{field}.bound"), &json!(measure.bound), &json!(held.bound));
            if let Some(limit) = held.limit {
                self.follows(format_args!("{field}.limit"), &json!(measure.limit), &json!(limit));
            }
        }
    }

    /// The limits that the recipe and the bundle's numbers lead to.
    fn limits(&mut self, judged: &Judged, recipe: &Recipe) -> Option<Limits> {
        let Some(gate) = &recipe.gate else {
            self.follows("judged", &json!("judged"), &json!("not judged: the recipe has no gate"));
            return None;
        };
        // A front is of fp32 in any case, and is judged by its body's numbers.
        let bodied = judged.body.as_ref().and_then(|body| self.record.artefacts.iter().find(|a| a.name == body.name));
        let numbers = bodied.unwrap_or(self.bundle);
        let expected = json!(recipe.precision.name());
        self.follows("judged.precision", &json!(judged.precision), &expected);
        let made = &numbers.made["options"]["precision"];
        follows(format!("{}: made.options.precision", numbers.name), made, &expected, self.faults);
        let limits = Limits::of(recipe.precision);
        let scale = self.bundle.made["stages"]["functions"][0]["author"]["scale"].as_f64();
        let limits = scale.map_or(limits, |scale| limits.at_scale(scale));
        limits.with(&gate.limits).ok()
    }
}
