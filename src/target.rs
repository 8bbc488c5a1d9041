//! What the target takes, as data: versions, ranks, names, dtypes, and what keeps a graph off the Neural Engine.
//!
//! Level 1: knows dtypes only, so that graphs and rules stay apart; `validate` and `analysis` bring the two together.

use crate::tensor::DType;
use serde::{Serialize, Serializer};

/// A Core ML program version and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The opset's name in the program.
    pub opset: &'static str,
    /// The model's specification version.
    pub specification: i32,
    /// The first systems that load it.
    pub systems: &'static str,
    /// Highest rank of a value.
    pub max_rank: usize,
    /// Dtypes a value inside the graph may have.
    pub value_dtypes: &'static [DType],
    /// Dtypes an input or output may have.
    pub feature_dtypes: &'static [DType],
}

/// The one target there is now.
///
/// Tools convert rank 6 and the system then refuses to load it (apple/coremltools #1723). Ops take no 64-bit numbers,
/// and bf16 has no blob the loader would read. int8 features can be saved, but whether they run is not known.
pub const COREML8: Target = Target {
    opset: "CoreML8",
    specification: 9,
    systems: "iOS 18, macOS 15",
    max_rank: 5,
    value_dtypes: &[DType::F32, DType::F16, DType::I32, DType::I16, DType::I8, DType::U16, DType::U8, DType::Bool],
    feature_dtypes: &[DType::F32, DType::F16, DType::I32],
};

/// A constant of at least this many elements goes to the weight file, a smaller one into the program. The number is
/// coremltools', and the same in every format.
pub const WEIGHT_FILE_FROM: usize = 10;

/// Words that the program's own syntax takes; coremltools renames values that have one for a name.
pub const RESERVED: [&str; 24] = [
    "any", "bool", "program", "func", "tensor", "list", "dict", "tuple", "true", "false", "string", "bf16", "fp16",
    "fp32", "fp64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "state",
];

/// What is wrong with a public name.
///
/// The loader takes any string; but a leading digit is against the language (apple/coremltools #1494) and dashes and
/// slashes break the code that Xcode generates (apple/coremltools #117).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// It has no character.
    #[error("is empty")]
    Empty,
    /// It is no identifier.
    #[error("is not of the form [A-Za-z_][A-Za-z0-9_]*")]
    Form,
    /// It is one of [`RESERVED`].
    #[error("is a reserved word")]
    Reserved,
}

/// Checks the name of a function, input or output.
///
/// # Errors
/// The target's tools would rename it, or choke on it later.
pub fn check_name(name: &str) -> Result<(), NameFault> {
    let Some(first) = name.chars().next() else { return Err(NameFault::Empty) };
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if first.is_ascii_digit() || !name.chars().all(legal) {
        return Err(NameFault::Form);
    }
    if RESERVED.contains(&name) { Err(NameFault::Reserved) } else { Ok(()) }
}

/// Highest rank the Neural Engine is given.
pub const NEURAL_ENGINE_RANK: usize = 4;

/// A way to lose the Neural Engine, or its accuracy. The tools report it at best in a log, and exit 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// An op or constant in fp32.
    Fp32Value,
    /// An input or output in fp32.
    Fp32Feature,
    /// A value of rank above [`NEURAL_ENGINE_RANK`].
    Rank,
    /// A change of dtype inside the graph.
    Cast,
    /// A mean written as a product with equal weights.
    MeanAsProduct,
    /// A library layer norm on fp16.
    LibraryNorm,
    /// Elements picked by index, or reversed.
    Gather,
    /// An extent that is not fixed.
    DynamicShape,
}

impl Rule {
    /// Every rule, in declaration order.
    pub const ALL: [Rule; 8] = [
        Rule::Fp32Value,
        Rule::Fp32Feature,
        Rule::Rank,
        Rule::Cast,
        Rule::MeanAsProduct,
        Rule::LibraryNorm,
        Rule::Gather,
        Rule::DynamicShape,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Fp32Value => "fp32_value",
            Rule::Fp32Feature => "fp32_feature",
            Rule::Rank => "rank",
            Rule::Cast => "cast",
            Rule::MeanAsProduct => "mean_as_product",
            Rule::LibraryNorm => "library_norm",
            Rule::Gather => "gather",
            Rule::DynamicShape => "dynamic_shape",
        }
    }

    /// What happens, and how that is known.
    pub const fn blocker(self) -> Blocker {
        let (effect, source) = match self {
            Rule::Fp32Value => (
                "one fp32 op or constant leaves a graph without any Neural Engine region",
                "measured by the encoder port on h16c: fp32 and fp16w32 forms compile to 0 regions, fp16 to 1",
            ),
            Rule::Fp32Feature => (
                "an fp16 graph with fp32 inputs or outputs holds fp32 values at its ends",
                "encoder port: the fp16 form that gets its region takes and returns fp16",
            ),
            Rule::Rank => (
                "the graphs known to run on the Neural Engine have no value of rank above 4",
                "kept by the encoder port as a rule of authoring, not measured by itself",
            ),
            Rule::Cast => (
                "a change of dtype is left to the CPU",
                "kept by the laya-coreml port as a rule of authoring, not measured by itself",
            ),
            Rule::MeanAsProduct => (
                "the mean of squares loses its accuracy when it is summed as a matrix product",
                "measured by the encoder port on the Neural Engine: cosine 0.404",
            ),
            Rule::LibraryNorm => (
                "layer_norm on fp16 is computed with fp32 statistics and leaves the Neural Engine",
                "reported by the encoder port",
            ),
            Rule::Gather => {
                ("the Neural Engine compiler rejects a shift made by gather or reverse", "cactus-compute/cactus PR 729")
            }
            Rule::DynamicShape => (
                "enumerated or ranged shapes lose the Neural Engine; one function per bucket keeps it",
                "reported by the encoder port",
            ),
        };
        Blocker { rule: self, effect, source }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// A [`Rule`] with what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// The rule.
    pub rule: Rule,
    /// What happens where it is broken.
    pub effect: &'static str,
    /// Who measured or reported it.
    pub source: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["features", "_x", "k_cache2", "Tensor", "fp"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for (name, fault) in [
            ("", NameFault::Empty),
            ("2x", NameFault::Form),
            ("a-b", NameFault::Form),
            ("a.b", NameFault::Form),
            ("caf\u{e9}", NameFault::Form),
            ("x ", NameFault::Form),
            ("tensor", NameFault::Reserved),
            ("fp16", NameFault::Reserved),
        ] {
            assert_eq!(check_name(name), Err(fault), "{name}");
        }
    }

    #[test]
    fn every_rule_has_a_name_of_its_own_and_a_source() {
        let names: std::collections::BTreeSet<&str> = Rule::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            assert!(!rule.blocker().effect.is_empty() && !rule.blocker().source.is_empty(), "{rule:?}");
        }
    }
}
