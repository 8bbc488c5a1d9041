//! Against what the published host code made of the requests in the fixture.

use super::*;
use crate::checkpoint::Checkpoint;
use crate::models::laya::{AGENT_FILE, ENCODER_FILE, SLOTS};
use serde_json::Value;

pub const FIXTURE: &str = "tests/fixtures/laya";

/// Shares and answers agree within this; both sides compute in f32.
const CLOSE: f64 = 1e-5;

pub fn config() -> LayaConfig {
    let text = |file: &str| fs_err::read_to_string(Path::new(FIXTURE).join(file)).unwrap();
    LayaConfig::parse(&text(ENCODER_FILE), &text(AGENT_FILE), [ENCODER_FILE, AGENT_FILE]).unwrap()
}

fn requests() -> Vec<Value> {
    let json = crate::json::read(&fs_err::read(Path::new(FIXTURE).join("requests.json")).unwrap()).unwrap();
    json.as_array().unwrap().clone()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn whole<T: TryFrom<u64, Error: std::fmt::Debug>>(value: &Value) -> Vec<T> {
    value.as_array().unwrap().iter().map(|x| x.as_u64().unwrap().try_into().unwrap()).collect()
}

/// The same JSON, numbers within [`CLOSE`].
fn alike(found: &Value, want: &Value) -> bool {
    match (found, want) {
        (Value::Number(a), Value::Number(b)) => (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() <= CLOSE,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.keys().eq(b.keys()) && a.values().zip(b.values()).all(|(a, b)| alike(a, b))
        }
        _ => found == want,
    }
}

fn prepared(
    host: &Host<'_>,
    request: &Value,
    length: usize,
    overlong: Overlong,
) -> Result<(Question, Prepared), HostError> {
    let question = Question::parse("q", &request["question"])?;
    let state = host.state(&State::new(&request["state"])?)?;
    let prepared = host.prepare(&question, &state, &Lengths::new(&[length]).unwrap(), overlong)?;
    Ok((question, prepared))
}

/// Calls `check` with the host and each request at each length.
fn each(check: impl Fn(&Host<'_>, &Value, usize, &Value)) {
    let config = config();
    let checkpoint = Checkpoint::open(Path::new(FIXTURE)).unwrap();
    let host = Host::open(Path::new(FIXTURE), &config, &checkpoint).unwrap();
    for request in requests() {
        for (length, want) in request["at"].as_object().unwrap() {
            check(&host, &request, length.parse().unwrap(), want);
        }
    }
}

#[test]
fn sequences_are_the_published_ones() {
    each(|host, request, length, want| {
        let name = format!("{} at {length}", request["name"]);
        let found = prepared(host, request, length, Overlong::CutState);
        if want.get("error").is_some() {
            assert!(found.is_err(), "{name}");
            return;
        }
        let (question, Prepared { sequence, .. }) = found.unwrap();
        assert_eq!(sequence.ids, whole::<u32>(&want["ids"]), "{name}");
        assert_eq!(sequence.markers, whole::<usize>(&want["markers"]), "{name}");
        assert_eq!(serde_json::to_value(&sequence.state).unwrap(), want["state"], "{name}");
        let head = serde_json::to_value(&sequence.head).unwrap();
        for (key, stat) in want["options"].as_object().unwrap() {
            assert_eq!(&head[key], stat, "{name}: {key}");
        }
        assert_eq!(question.options().len(), sequence.markers.len());
    });
}

#[test]
fn what_is_needed_is_told_and_nothing_is_cut_unasked() {
    each(|host, request, length, want| {
        let Some(needed) = request["needed"].as_u64().map(|n| n as usize).filter(|_| want.get("error").is_none())
        else {
            return;
        };
        let limit = length.min(160);
        match prepared(host, request, length, Overlong::Refuse) {
            Ok((_, prepared)) => assert_eq!((prepared.sequence.ids.len(), needed <= limit), (needed, true)),
            Err(HostError::Sequence(SequenceError::TooLong { needed: told, limit: most, .. })) => {
                assert_eq!((told, most, needed > limit), (needed, limit, true));
            }
            Err(other) => panic!("{}: {other}", request["name"]),
        }
    });
}

#[test]
fn decisions_are_the_published_ones() {
    each(|host, request, length, want| {
        if want.get("error").is_some() {
            return;
        }
        let name = format!("{} at {length}", request["name"]);
        let question = Question::parse("q", &request["question"]).unwrap();
        // What a graph gives for slots without an option is not said, and must not matter.
        let mut logits = floats(&want["logits"]);
        logits.resize(SLOTS, 77.0);
        let decision = host.decide(&question, &logits, &floats(&want["cls"])).unwrap();
        for (found, key) in [(&decision.action.logits, "action_logits"), (&decision.action.probabilities, "action")] {
            let far = found.iter().zip(floats(&want[key])).find(|(a, b)| (*a - b).abs() > 1e-5 * (1.0 + b.abs()));
            assert_eq!(far, None, "{name}: {key}");
            assert_eq!(found.len(), 3);
        }
        let answer = serde_json::to_value(&decision.answer).unwrap();
        assert!(alike(&answer, &want["answer"]), "{name}: {answer}\nexpected {}", want["answer"]);
    });
}

#[test]
fn refusals_by_name() {
    let config = config();
    let checkpoint = Checkpoint::open(Path::new(FIXTURE)).unwrap();
    let host = Host::open(Path::new(FIXTURE), &config, &checkpoint).unwrap();
    let mut told = Vec::new();
    for request in requests() {
        if let Err(e) = prepared(&host, &request, 192, Overlong::Refuse) {
            told.push(format!("{}: {e}", request["name"].as_str().unwrap()));
        }
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    structured state: question "q" takes 222 tokens, 57 of them for itself, and 160 fit; ask with a shorter state, a longer graph (the model's max_len is its end), or for the state to be cut
    conversation, newest last: question "q" takes 268 tokens, 44 of them for itself, and 160 fit; ask with a shorter state, a longer graph (the model's max_len is its end), or for the state to be cut
    a long text: question "q" takes 501 tokens, 32 of them for itself, and 160 fit; ask with a shorter state, a longer graph (the model's max_len is its end), or for the state to be cut
    just past 96: question "q" takes 174 tokens, 39 of them for itself, and 160 fit; ask with a shorter state, a longer graph (the model's max_len is its end), or for the state to be cut
    33 options: question "q" has 33 options, expected at most 32
    a label twice: question "q" has label 2 ("a") that repeats label 0; labels are the keys of the answer
    labels that compare equal: question "q" has label 2 (1.0) that repeats label 0; labels are the keys of the answer
    true and one: question "q" has label 1 (1) that repeats label 0; labels are the keys of the answer
    no state: the state is null, expected a text, an object or a list
    blank instructions: question "q" has no instructions, expected the text to answer
    no instructions: question "q" has no instructions, expected the text to answer
    unknown type: question "q" has type "bool", expected "choice", "score" or "noul"
    labels of a choice: question "q" has labels, which only a noul question takes
    labels that are one: question "q" has labels {"false": "a", "true": " a"}, expected two texts that differ, by the keys "false" and "true"
    a level that is null: question "q" has level 1 that is null, expected its description
    order of too few: question "q" has option_order [0], expected each of 0 to 1 once
    order with a fraction: question "q" has option_order [0, 1.0], expected each of 0 to 1 once
    criteria of neither answer: question "q" has criteria for "yes", expected only "true" and "false"
    no options: question "q" has no options, expected 1 to 32 criteria
    a null label: question "q" has label 1 that is null, expected a text, a number, true or false
    "#);
    let lengths = Lengths::new(&[96, 192]).unwrap();
    let question = Question::parse("q", &serde_json::json!({"type": "noul", "instructions": "Paid?"})).unwrap();
    let length_of = |text: &str| {
        let state = host.state(&State::new(&text.into()).unwrap()).unwrap();
        host.prepare(&question, &state, &lengths, Overlong::CutState).unwrap().length.get()
    };
    assert_eq!([length_of("short"), length_of(&"0".repeat(80)), length_of(&"0".repeat(800))], [96, 192, 192]);
}
