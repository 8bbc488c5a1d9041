//! Requests to the decision model from text to answer, against the published host on the fixture of
//! scripts/laya_fixture.py.

use crate::cli::fixture;
use eg2_convert::checkpoint::{Checkpoint, Ledger};
use eg2_convert::eval::{Evaluator, HostTensor, Options, Values};
use eg2_convert::models::laya::host::{Features, Host, Overlong, Question, State};
use eg2_convert::models::laya::{AGENT_FILE, ENCODER_FILE, LayaConfig, Length, Lengths, author, names};
use eg2_convert::validate::check;
use serde_json::Value;
use std::collections::BTreeMap;

/// How far a share or a logit may be off, both in f32.
const CLOSE: f64 = 1e-4;

fn inputs(features: Features) -> BTreeMap<String, HostTensor> {
    let tensor = |f: eg2_convert::models::laya::host::Feature| {
        (f.name.to_string(), HostTensor::new(f.fact, Values::F32(f.values)).unwrap())
    };
    features.into_vec().into_iter().map(tensor).collect()
}

/// The largest distance of two numbers in the same place; all else must be equal.
pub fn apart(found: &Value, want: &Value) -> f64 {
    let worst = |pairs: &mut dyn Iterator<Item = (&Value, &Value)>| pairs.map(|(a, b)| apart(a, b)).fold(0.0, f64::max);
    match (found, want) {
        (Value::Number(a), Value::Number(b)) => (a.as_f64().unwrap() - b.as_f64().unwrap()).abs(),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => worst(&mut a.iter().zip(b)),
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => worst(&mut a.values().zip(b.values())),
        _ if found == want => 0.0,
        _ => f64::INFINITY,
    }
}

#[test]
fn answers_are_those_of_the_published_host() {
    let folder = fixture("laya");
    let text = |file: &str| fs_err::read_to_string(folder.join(file)).unwrap();
    let config = LayaConfig::parse(&text(ENCODER_FILE), &text(AGENT_FILE), [ENCODER_FILE, AGENT_FILE]).unwrap();
    let source = Checkpoint::open(&folder).unwrap();
    let host = Host::open(&folder, &config, &source).unwrap();
    let requests: Vec<Value> = serde_json::from_str(&text("requests.json")).unwrap();
    let mut answered = 0;
    for length in [96, 192] {
        let lengths = Lengths::new(&[length]).unwrap();
        let (graph, _) = author(&config, Length::new(length).unwrap(), &Ledger::new(&source)).unwrap();
        let evaluator = Evaluator::new(check(&graph).unwrap(), &source, Options::default());
        for request in &requests {
            let want = &request["at"][length.to_string()];
            if want.get("error").is_some() {
                continue;
            }
            let question = Question::parse("q", &request["question"]).unwrap();
            let state = host.state(&State::new(&request["state"]).unwrap()).unwrap();
            let prepared = host.prepare(&question, &state, &lengths, Overlong::CutState).unwrap();
            let (outputs, seen) = evaluator.run(&inputs(prepared.features)).unwrap();
            assert!(seen.non_finite.is_none(), "{seen:?}");
            let floats = |name: &str| outputs[name].floats().unwrap().to_vec();
            let decision = host.decide(&question, &floats(names::LOGITS), &floats(names::CLS)).unwrap();
            let found = serde_json::to_value(&decision.answer).unwrap();
            let apart = apart(&found, &want["answer"]);
            assert!(apart <= CLOSE, "{} at {length} is {apart} off: {found}\n{}", request["name"], want["answer"]);
            answered += 1;
        }
    }
    assert_eq!(answered, 48);
}
