//! Red arms of the decision model: its inputs as a wrong host or a wrong graph would have them. Each must fail the gate by
//! the limits that the artefact itself is held to, on one question at least: the gate fails where any question does.

use super::{Asked, Distance, Judge, Judged, distance};
use crate::eval::HostTensor;
use crate::gate::numbers::{run, with_values};
use crate::gate::{Check, GateError, Limits, Measure, Tensors};
use crate::models::laya::host::masks;
use crate::models::laya::names;
use serde_json::json;
use std::error::Error;

/// Inputs by name, in place of the host's own.
type Inputs = Vec<(&'static str, Vec<f32>)>;

/// An arm.
struct Arm {
    name: &'static str,
    /// Questions that it does something to.
    applies: &'static str,
    spoil: fn(&Spoilt<'_>) -> Inputs,
}

/// What an arm is made of.
struct Spoilt<'a> {
    valid: &'a [bool],
    window: usize,
    types: usize,
}

/// Names of the arms, as checks.
pub const NAMES: [&str; 5] =
    ["red arm window", "red arm all global", "red arm all local", "red arm padding seen", "red arm no type"];

const ARMS: [Arm; 5] = [
    Arm { name: NAMES[0], applies: "questions longer than half the window", spoil: window_off_by_one },
    Arm { name: NAMES[1], applies: "questions longer than half the window", spoil: all_global },
    Arm { name: NAMES[2], applies: "questions longer than half the window", spoil: all_local },
    Arm { name: NAMES[3], applies: "questions shorter than the graph", spoil: padding_seen },
    Arm { name: NAMES[4], applies: "questions of a type whose vector is not zero", spoil: no_type },
];

/// The farthest key is left out, as by `<` in place of `<=`; where a query sees itself alone, the next one is let in.
fn window_off_by_one(of: &Spoilt<'_>) -> Inputs {
    let half = of.window / 2;
    let [_, local] = masks(of.valid, 2 * half.checked_sub(1).unwrap_or(1));
    vec![(names::LOCAL_MASK, local)]
}

fn all_global(of: &Spoilt<'_>) -> Inputs {
    let [full, _] = masks(of.valid, of.window);
    vec![(names::LOCAL_MASK, full)]
}

fn all_local(of: &Spoilt<'_>) -> Inputs {
    let [_, local] = masks(of.valid, of.window);
    vec![(names::FULL_MASK, local)]
}

fn padding_seen(of: &Spoilt<'_>) -> Inputs {
    let [full, local] = masks(&vec![true; of.valid.len()], of.window);
    vec![(names::FULL_MASK, full), (names::LOCAL_MASK, local)]
}

fn no_type(of: &Spoilt<'_>) -> Inputs {
    vec![(names::TYPE_VECTORS, vec![0.0; of.types])]
}

/// The inputs of a question under an arm; none where it does nothing to what its tokens see.
fn inputs<E>(arm: &Arm, asked: &Asked<'_, E>, window: usize) -> Option<Tensors> {
    let values = |name: &str| asked.inputs.get(name).and_then(HostTensor::floats).unwrap_or_default();
    let spoilt = Spoilt { valid: &asked.valid, window, types: values(names::TYPE_VECTORS).len() };
    let mut inputs = asked.inputs.clone();
    let mut changed = false;
    for (name, spoilt) in (arm.spoil)(&spoilt) {
        // Of a mask, what a query past the sequence sees is of no matter: no token of it is seen.
        let seen = |index: usize| {
            name == names::TYPE_VECTORS || asked.valid.get(index % asked.valid.len().max(1)) == Some(&true)
        };
        let differ = values(name).iter().zip(&spoilt).enumerate().any(|(index, (was, is))| was != is && seen(index));
        changed |= differ;
        let tensor = inputs.get(name).map(|tensor| with_values(tensor, spoilt));
        inputs.extend(tensor.map(|tensor| (name.to_string(), tensor)));
    }
    changed.then_some(inputs)
}

/// Runs each arm on one question after the other, until one breaks. Questions that the artefact itself fails tell nothing.
///
/// # Errors
/// A run failed.
pub fn checks<E: Error>(
    asked: &[(&Asked<'_, E>, &Judged)],
    judge: &Judge<'_>,
    limits: &Limits,
) -> Result<Vec<Check>, GateError<E>> {
    ARMS.iter().map(|arm| check(arm, asked, judge, limits)).collect()
}

fn check<E: Error>(
    arm: &Arm,
    asked: &[(&Asked<'_, E>, &Judged)],
    judge: &Judge<'_>,
    limits: &Limits,
) -> Result<Check, GateError<E>> {
    let applies = asked.iter().filter_map(|(asked, judged)| Some((asked, judged, inputs(arm, asked, judge.window)?)));
    let (mut hidden, mut held) = (None, Vec::<(String, Distance)>::new());
    for (asked, judged, inputs) in applies {
        if !judged.distance.holds(limits) {
            hidden.get_or_insert(&asked.name);
            continue;
        }
        let outputs = run(&asked.name, asked.subject, &inputs)?;
        let red = distance(asked, &outputs, judge)?;
        if !red.holds(limits) {
            return Ok(broke(arm.name, &asked.name, &red, &held));
        }
        held.push((asked.name.clone(), red));
    }
    Ok(match (held.is_empty(), hidden) {
        (true, None) => Check::not_run(arm.name, format!("it applies to {}, and there is none", arm.applies)),
        (true, Some(name)) => {
            let reason = format!("the artefact fails each question it applies to without it, such as {name}");
            Check::not_run(arm.name, reason)
        }
        (false, _) => toothless(arm.name, &held),
    })
}

fn broke(name: &'static str, question: &str, red: &Distance, held: &[(String, Distance)]) -> Check {
    let after = if held.is_empty() { String::new() } else { format!(", after {} that it did not", held.len()) };
    let says = format!("broke {question}: {}{after}", red.says());
    let figures = json!({ "broke": question, "distance": red, "held": names_of(held) });
    Check::run(name, [Measure::at_least("broke", 1.0, 1.0)], says, figures)
}

fn toothless(name: &'static str, held: &[(String, Distance)]) -> Check {
    let says = format!("did not break any of {} that it applies to", crate::plural::counted(held.len(), "question"));
    let lines = held.iter().map(|(name, red)| format!("{name}: {}", red.says())).collect();
    let figures = json!({ "broke": null, "distance": null, "held": names_of(held) });
    Check::run(name, [Measure::at_least("broke", 0.0, 1.0)], says, figures).with_lines(lines)
}

fn names_of(held: &[(String, Distance)]) -> Vec<&String> {
    held.iter().map(|(name, _)| name).collect()
}
