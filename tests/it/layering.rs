//! A module imports only modules below its level. The table is the architecture; a new module must be put in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Levels from the bottom up; modules of one level do not import each other.
const LEVELS: [&[&str]; 11] = [
    &["files", "json", "plural"],
    &["cluster", "tensor", "digest", "dsp"],
    &["checkpoint", "ir", "target", "toolchain"],
    &["models", "validate", "analysis"],
    &["passes"],
    &["eval", "emit"],
    &["bundle"],
    &["gate"],
    &["provenance", "recipe"],
    &["pipeline"],
    &["cli"],
];

fn level(module: &str) -> usize {
    LEVELS.iter().position(|l| l.contains(&module)).unwrap_or_else(|| panic!("{module} has no level"))
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Names that follow `crate::` in code, grouped imports (`crate::{a, b::c}`) included.
fn imports(text: &str) -> BTreeSet<String> {
    let ident = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let code = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => {
                found.insert(ident(rest));
            }
            Some(group) => {
                let mut depth = 1;
                let mut start = true;
                for (i, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => start = true,
                        c if start && c.is_alphabetic() => {
                            found.insert(ident(&group[i..]));
                            start = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    found
}

#[test]
fn modules_import_only_lower_levels() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 20, "the sources were not found");
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&src).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs");
        if module == "lib" || module == "main" {
            continue;
        }
        for import in imports(&fs_err::read_to_string(&file).unwrap()) {
            if import != module && level(&import) >= level(module) {
                wrong.push(format!("{} imports {import}", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_scan_sees_what_it_should() {
    let text = "use crate::ir::{Graph, Op};\nuse crate::{tensor::{DType, Fact}, cli};\n// crate::gate\nlet x = crate::eval::run();";
    let want: BTreeSet<String> = ["ir", "tensor", "cli", "eval"].map(String::from).into();
    assert_eq!(imports(text), want);
}
