//! An encoder in two artefacts, as a cut makes them: run one after the other they are judged as one.

use super::{GateFailure, OtherArtefact, name_of};
use crate::bundle::Tree;
use crate::digest::Digest;
use crate::eval::{self, HostTensor, InputCast, Values};
use crate::gate::{Check, Measure, Tensors};
use crate::pipeline::RunError;
use crate::pipeline::encoder::HIDDEN;
use crate::pipeline::model::{Half, features_of};
use crate::pipeline::run::{Artefact, Callable, Functions, Outcome, Run, runtime_of};
use crate::provenance::{StoredRecord, StoredSource};
use crate::tensor::Fact;
use crate::toolchain::Interrupt;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const NAME: &str = "halves";

/// Why two artefacts are not the halves of one encoder.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum HalvesError {
    #[error("{} is {}, which is judged together with {}: eg2-convert gate FRONT --body BODY", path.display(), half.name(), half.other().name())]
    Alone { path: PathBuf, half: Half },
    #[error("{} has a function of {found}, expected {}, of {}", path.display(), half.name(), half.told())]
    Not { path: PathBuf, half: Half, found: String },
    #[error(
        "function {function} of front {} has no body for its {HIDDEN}, {given}; {} takes {have:?}",
        front.display(), body.display()
    )]
    Unmatched { front: PathBuf, function: String, given: Fact, body: PathBuf, have: Vec<String> },
    #[error(
        "front {} is of a cut behind {}, and body {} of one behind {}, by their records",
        front.display(), layer(*front_cut), body.display(), layer(*body_cut)
    )]
    Cut { front: PathBuf, front_cut: Option<u64>, body: PathBuf, body_cut: Option<u64> },
    #[error("front {} was made of {made_of}, and body {} of {body_of}, by their records", front.display(), body.display())]
    Source { front: PathBuf, made_of: String, body: PathBuf, body_of: String },
}

fn layer(cut: Option<u64>) -> String {
    cut.map_or_else(|| "no layer".into(), |cut| format!("layer {cut}"))
}

/// Refuses half an encoder.
///
/// # Errors
/// That is what the functions are of.
pub fn whole(path: &Path, functions: &[Callable<'_>]) -> Result<(), HalvesError> {
    match Half::of(functions) {
        Some(half) => Err(HalvesError::Alone { path: path.into(), half }),
        None => Ok(()),
    }
}

/// A body that is open to be run behind its front.
pub struct Body<'p> {
    path: &'p Path,
    runtime: &'static str,
    /// The bundle.
    pub artefact: Artefact,
    digest_root: Digest,
    /// What its record says.
    pub record: Option<StoredRecord>,
}

impl<'p> Body<'p> {
    /// Opens the body at `path`.
    ///
    /// # Errors
    /// The bundle cannot be used, its record is of other bytes, or it is no body.
    pub fn open(path: &'p Path, interrupt: &Interrupt) -> Result<Body<'p>, GateFailure> {
        let runtime = runtime_of(path, None)?;
        let artefact = Artefact::open(path, runtime, Functions::All, interrupt)?;
        expect(Half::Body, path, &artefact.functions(eval::Options::default())?)?;
        let digest_root = Tree::of(path)?.root();
        let record = StoredRecord::beside(path, digest_root)?;
        Ok(Body { path, runtime: runtime.name(), artefact, digest_root, record })
    }

    /// Which bytes it is.
    pub fn identity(&self) -> OtherArtefact {
        let Body { path, runtime, digest_root, .. } = *self;
        OtherArtefact { artefact: name_of(path), digest_root, runtime }
    }

    /// The functions of an encoder: each of the front at `path` with that of the body which takes what it gives.
    ///
    /// # Errors
    /// They are of no front, or one has no function behind it.
    pub fn behind<'a>(&'a self, path: &Path, fronts: Vec<Callable<'a>>) -> Result<Vec<Callable<'a>>, GateFailure> {
        expect(Half::Front, path, &fronts)?;
        let mut bodies = self.artefact.functions(eval::Options::default())?;
        let have: Vec<String> = bodies.iter().filter_map(|body| fact(&body.inputs)).map(ToString::to_string).collect();
        let mut joined = Vec::new();
        for front in fronts {
            let Some(given) = fact(&front.outputs).cloned() else { continue };
            let unmatched = || HalvesError::Unmatched {
                front: path.into(),
                function: front.name.clone(),
                given: given.clone(),
                body: self.path.into(),
                have: have.clone(),
            };
            let takes = |body: &Callable<'_>| fact(&body.inputs).is_some_and(|fact| fact.shape == given.shape);
            // Lengths tell which belong together; names do where lengths are alike.
            let same = bodies.iter().position(|body| body.name == front.name && takes(body));
            let at = same.or_else(|| bodies.iter().position(takes)).ok_or_else(unmatched)?;
            let body = bodies.swap_remove(at);
            joined.push(Callable {
                name: front.name.clone(),
                inputs: front.inputs.clone(),
                outputs: body.outputs.clone(),
                run: Box::new(Joined { front, body }),
            });
        }
        Ok(joined)
    }

    /// How what crosses the cut is cast, where it is.
    ///
    /// # Errors
    /// A function cannot be run.
    pub fn casts(&self, front: &Artefact) -> Result<Vec<InputCast>, RunError> {
        let (fronts, bodies) =
            (front.functions(eval::Options::default())?, self.artefact.functions(eval::Options::default())?);
        let dtype = |features: Option<&Fact>| features.map(|fact| fact.dtype);
        let from = fronts.first().and_then(|f| dtype(fact(&f.outputs)));
        let to = bodies.first().and_then(|f| dtype(fact(&f.inputs)));
        let cast = from.zip(to).filter(|(from, to)| from != to);
        Ok(cast.map(|(from, to)| InputCast { input: HIDDEN.into(), from, to }).into_iter().collect())
    }

    /// Holds the records of the halves against each other.
    ///
    /// # Errors
    /// They are of other cuts, or were made of other files.
    pub fn check(&self, front: &Path, record: Option<&StoredRecord>) -> Result<Check, HalvesError> {
        let (front_record, body_record) = match (record, &self.record) {
            (Some(front), Some(body)) => (front, body),
            (None, _) => return Ok(Check::not_run(NAME, "the front has no record beside it")),
            (_, None) => return Ok(Check::not_run(NAME, "the body has no record beside it")),
        };
        if [front_record, body_record].iter().any(|record| record.source.kind == "bundle") {
            return Ok(Check::not_run(NAME, "a half was made from a bundle, and its record names no weights"));
        }
        let [front_cut, body_cut] = [front_record, body_record].map(|record| record.options["split_after"].as_u64());
        let (front, body) = (front.to_path_buf(), self.path.to_path_buf());
        let Some(cut) = front_cut.filter(|_| front_cut == body_cut) else {
            return Err(HalvesError::Cut { front, front_cut, body, body_cut });
        };
        let sources = [&front_record.source, &body_record.source];
        if origin(sources[0]) != origin(sources[1]) {
            let [made_of, body_of] = sources.map(told);
            return Err(HalvesError::Source { front, made_of, body, body_of });
        }
        let says = format!("cut behind layer {cut}, of the same source, by their records");
        // Halves of others would have been refused above.
        Ok(Check::run(NAME, [Measure::none("of_others", 0)], says, json!({ "split_after": cut })))
    }
}

/// What makes two sources one: names of files say nothing.
fn origin(source: &StoredSource) -> (&str, Option<u64>, BTreeSet<Digest>) {
    (&source.kind, source.seed, source.files.iter().map(|file| file.sha256).collect())
}

fn told(source: &StoredSource) -> String {
    let files = source.files.iter().map(|file| format!("{} {}", file.name, file.sha256));
    let seed = source.seed.map(|seed| format!("seed {seed}"));
    let all: Vec<String> = seed.into_iter().chain(files).collect();
    if all.is_empty() { "no file".into() } else { all.join(", ") }
}

fn expect(half: Half, path: &Path, functions: &[Callable<'_>]) -> Result<(), HalvesError> {
    let other = functions.iter().find(|function| !half.is(function));
    match other {
        Some(function) => Err(HalvesError::Not { path: path.into(), half, found: features_of(function) }),
        None => Ok(()),
    }
}

/// The fact of what crosses the cut.
fn fact(features: &[(String, Fact)]) -> Option<&Fact> {
    features.iter().find(|(name, _)| name == HIDDEN).map(|(_, fact)| fact)
}

/// A front and the body behind it.
struct Joined<'a> {
    front: Callable<'a>,
    body: Callable<'a>,
}

impl Run for Joined<'_> {
    fn run(&self, inputs: &Tensors) -> Result<Outcome, RunError> {
        let (mut given, mut report) = self.front.run.run(inputs)?;
        let crossing = given.remove(HIDDEN).map(|hidden| (HIDDEN.to_string(), self.crossed(hidden)));
        let (outputs, of_body) = self.body.run.run(&crossing.into_iter().collect())?;
        report.casts.extend(of_body.casts);
        Ok((outputs, report))
    }
}

impl Joined<'_> {
    /// What the front gave, in the body's dtype. A value that is beyond it becomes infinite, as on a device: it is the
    /// artefact that is wrong then, which a check has to find.
    fn crossed(&self, hidden: HostTensor) -> HostTensor {
        let floats = |fact: &&Fact| fact.dtype.is_float() && fact.shape == hidden.fact().shape;
        match (fact(&self.body.inputs).filter(floats), hidden.values()) {
            (Some(fact), Values::F32(values)) => {
                HostTensor::new(fact.clone(), Values::F32(values.clone())).unwrap_or(hidden)
            }
            (Some(_) | None, Values::F32(_) | Values::I32(_)) => hidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::Report;
    use crate::tensor::DType;

    /// Gives the tensor it has, or back what it gets.
    struct Fixed(Option<HostTensor>);

    impl Run for Fixed {
        fn run(&self, inputs: &Tensors) -> Result<Outcome, RunError> {
            let given = self.0.iter().map(|tensor| (HIDDEN.to_string(), tensor.clone()));
            let outputs = if self.0.is_some() { given.collect() } else { inputs.clone() };
            Ok((outputs, Report::default()))
        }
    }

    fn callable(inputs: &[(String, Fact)], outputs: &[(String, Fact)], given: Option<HostTensor>) -> Callable<'static> {
        let run = Box::new(Fixed(given));
        Callable { name: "main".into(), inputs: inputs.to_vec(), outputs: outputs.to_vec(), run }
    }

    /// What a body that takes `fact` gets of a front that gives `values`.
    fn crossed(values: Vec<f32>, fact: Fact) -> HostTensor {
        let own = Fact::new(DType::F32, [1, values.len()]);
        let given = HostTensor::new(own.clone(), Values::F32(values)).unwrap();
        let hidden = |fact| [(HIDDEN.to_string(), fact)];
        let joined =
            Joined { front: callable(&[], &hidden(own), Some(given)), body: callable(&hidden(fact), &[], None) };
        joined.run(&Tensors::new()).unwrap().0.remove(HIDDEN).unwrap()
    }

    #[test]
    fn what_crosses_is_in_the_bodys_dtype() {
        let values = || vec![0.1, 1e6, f32::NEG_INFINITY];
        let half = Fact::new(DType::F16, [1, 3]);
        let found = crossed(values(), half.clone());
        assert_eq!(
            (found.fact(), found.floats().unwrap()),
            (&half, &[0.099975586, f32::INFINITY, f32::NEG_INFINITY][..])
        );
        let same = crossed(values(), Fact::new(DType::F32, [1, 3]));
        assert_eq!(same.floats().unwrap(), values());
        // What cannot be cast is handed on as it is, for the body to refuse.
        for other in [Fact::new(DType::F16, [1, 4]), Fact::new(DType::I32, [1, 3])] {
            assert_eq!(crossed(values(), other).fact(), same.fact());
        }
    }
}
