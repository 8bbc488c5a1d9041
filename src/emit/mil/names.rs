//! Legal, unique names for the values of one function.

use std::collections::HashMap;

/// Words of the MIL text form that no value may be called; the list is coremltools'.
const RESERVED: [&str; 26] = [
    "any", "bool", "program", "func", "tensor", "list", "dict", "tuple", "true", "false", "string", "bf16", "fp16",
    "fp32", "fp64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "state", "main", "const",
];

/// Whether `name` may stand in a package as it is: a letter or underscore, then letters, digits and underscores.
pub(super) fn is_legal(name: &str) -> bool {
    let start = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(start) && name.chars().all(|c| start(c) || c.is_ascii_digit()) && !RESERVED.contains(&name)
}

/// Names given out so far in one function.
#[derive(Default)]
pub(super) struct Names {
    /// Each name, and the number its next namesake tries first.
    taken: HashMap<String, u32>,
}

impl Names {
    /// Takes a name exactly as it is; false where it is taken already.
    pub fn claim(&mut self, name: &str) -> bool {
        self.taken.insert(name.into(), 2).is_none()
    }

    /// The legal name nearest to `path` that is not taken: every other character becomes an underscore, and a number
    /// is appended where the name is taken.
    pub fn fresh(&mut self, path: &str) -> String {
        let base = legal(path);
        let mut number = match self.taken.get(&base) {
            None => {
                self.taken.insert(base.clone(), 2);
                return base;
            }
            Some(next) => *next,
        };
        loop {
            let name = format!("{base}_{number}");
            number += 1;
            if self.claim(&name) {
                self.taken.insert(base, number);
                return name;
            }
        }
    }
}

fn legal(path: &str) -> String {
    let mut name: String = path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    if RESERVED.contains(&name.as_str()) {
        name.push('_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_become_identifiers() {
        let mut names = Names::default();
        let cases = [
            ("layers.3.self_attn.q_proj", "layers_3_self_attn_q_proj"),
            ("layers_3.self_attn.q_proj", "layers_3_self_attn_q_proj_2"),
            ("layers.3.self_attn.q_proj.2", "layers_3_self_attn_q_proj_2_2"),
            ("layers-3.self_attn.q_proj", "layers_3_self_attn_q_proj_3"),
            ("0", "_0"),
            ("", "_"),
            ("fp16", "fp16_"),
            ("fp16_", "fp16__2"),
            ("größe", "gr__e"),
        ];
        for (path, want) in cases {
            assert_eq!(names.fresh(path), want, "{path}");
        }
    }

    #[test]
    fn what_is_legal() {
        for name in ["features", "_x1", "A"] {
            assert!(is_legal(name), "{name}");
        }
        for name in ["", "1x", "a.b", "a-b", "tensor", "größe", "a b"] {
            assert!(!is_legal(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_are_legal_and_unique(paths in prop::collection::vec("[a-b_.0-2]{0,4}|fp16|\\PC{0,3}", 0..60)) {
            let mut names = Names::default();
            let mut seen = std::collections::BTreeSet::new();
            for path in paths {
                let name = names.fresh(&path);
                prop_assert!(is_legal(&name), "{}", name);
                prop_assert!(seen.insert(name));
            }
        }
    }
}
