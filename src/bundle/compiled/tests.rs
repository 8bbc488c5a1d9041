//! Bundles built in folders, each right but for what its test is about.

use super::*;
use tree::{Manifest, NO_REGIONS, Tree, package, symbol};

#[path = "../../../tests/support/compiled_tree.rs"]
mod tree;

fn in_folder(build: impl FnOnce(&std::path::Path) -> Tree) -> Result<CompiledBundle, CompiledError> {
    let dir = tempfile::tempdir().unwrap();
    let tree = build(dir.path());
    CompiledBundle::open(&tree.root)
}

/// `arch function: count, bytes of code + bytes of weights` for each function.
fn counted(bundle: &CompiledBundle) -> Vec<String> {
    let line = |architecture: &str, symbol: &str, regions: &Vec<Region>| {
        let ir: u64 = regions.iter().map(|r| r.ir_bytes).sum();
        let weights: Vec<String> =
            regions.iter().map(|r| r.weights_bytes.map_or("-".into(), |n| n.to_string())).collect();
        format!("{architecture} {}: {} ({ir} + {})", short_stem(symbol), regions.len(), weights.join(" "))
    };
    let functions = |(name, a): (&String, &Architecture)| {
        a.functions.iter().map(|(symbol, regions)| line(name, symbol, regions)).collect::<Vec<_>>()
    };
    bundle.architectures.iter().flat_map(functions).collect()
}

/// The faults found with `expectation`, one a line.
fn faults(bundle: &CompiledBundle, expectation: &str) -> String {
    let verdict = bundle.check(&expectation.parse().unwrap());
    verdict.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn stem(function: &str, i: usize, j: usize) -> String {
    format!("{}_ANE_region_{i}_{j}", symbol(function, 'h'))
}

#[test]
fn one_region_is_one_though_a_glob_finds_two() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path(), "a.aimodelc", &["h16c"]);
    tree.region("h16c", &stem("main", 0, 0), None);
    let bundle = CompiledBundle::open(&tree.root).unwrap();
    let walk = walk::Walk::of(&tree.root).unwrap();
    let paths = walk.files.keys().chain(&walk.folders);
    let globbed = paths.filter(|path| path.rsplit('/').next().unwrap().contains("_ANE_region_")).count();
    assert_eq!((globbed, bundle.region_count()), (2, 1));
    assert_eq!(counted(&bundle), ["h16c main_hhhhhh\u{2026}_0: 1 (6 + -)"]);
    assert_eq!(faults(&bundle, "1"), "");
    insta::assert_snapshot!(faults(&bundle, "2"), @"h16c: 1 regions found, 2 expected");
}

#[test]
fn many_regions_with_and_without_weights() {
    let bundle = in_folder(|dir| {
        let tree = Tree::new(dir, "a.aimodelc", &["h18p"]);
        for i in 0..25 {
            tree.region("h18p", &stem("main", i, i % 3), (i % 2 == 0).then_some(i));
        }
        tree
    });
    let bundle = bundle.unwrap();
    assert_eq!(bundle.region_count(), 25);
    assert_eq!(faults(&bundle, "h18p=25"), "");
}

#[test]
fn weights_are_never_required() {
    for weights in [None, Some(9)] {
        let bundle = in_folder(|dir| {
            let tree = Tree::new(dir, "a.aimodelc", &["h16c"]);
            tree.region("h16c", &stem("main", 0, 0), weights);
            tree
        });
        let bundle = bundle.unwrap();
        let region = &bundle.architectures["h16c"].functions.values().next().unwrap()[0];
        assert_eq!((region.ir_bytes, region.weights_bytes), (6, weights.map(|n| n as u64)));
        assert_eq!(faults(&bundle, "1"), "");
    }
}

#[test]
fn architectures_are_counted_apart() {
    let bundle = in_folder(|dir| {
        let tree = Tree::new(dir, "a.aimodelc", &["h16c", "h18p"]);
        tree.region("h16c", &stem("main", 0, 0), None);
        tree
    });
    let bundle = bundle.unwrap();
    assert_eq!(faults(&bundle, "h16c=1,h18p=0"), "");
    assert_eq!(faults(&bundle, "h16c=1"), "", "nothing is expected of h18p");
    insta::assert_snapshot!(faults(&bundle, "1"), @"h18p: 0 regions found, 1 expected");
    insta::assert_snapshot!(faults(&bundle, "h16c=1,h19p=0"), @"h19p: 0 regions expected, but the bundle does not have this architecture");
}

#[test]
fn code_counts_for_the_architecture_whose_folder_it_is_in() {
    let bundle = in_folder(|dir| {
        let tree = Tree::new(dir, "a.aimodelc", &["h16c"]);
        let stem = stem("main", 0, 0);
        for inner in ["h16c", "h16g"] {
            let llir = format!("{}/binary_0.llir.bundle", package("h16c"));
            tree.write(&format!("{llir}/{stem}.bc/{inner}/{stem}.mlir.bc"), inner.as_bytes());
        }
        tree
    });
    let bundle = bundle.unwrap();
    assert_eq!(counted(&bundle), ["h16c main_hhhhhh\u{2026}_0: 1 (4 + -)", "h16g main_hhhhhh\u{2026}_0: 1 (4 + -)"]);
    insta::assert_snapshot!(faults(&bundle, "1"), @"h16g: there is no main-h16g.mlirb");
}

#[test]
fn equal_indices_of_two_functions_are_two_regions() {
    let bundle = in_folder(|dir| {
        let tree = Tree::new(dir, "a.aimodelc", &["h16c"]);
        for function in ["extend_1", "extend_1024", "main"] {
            tree.region("h16c", &stem(function, 0, 0), None);
        }
        tree.region("h16c", &format!("{}_ANE_region_0_0", symbol("main", 'k')), None);
        tree
    });
    let bundle = bundle.unwrap();
    assert_eq!(bundle.architectures["h16c"].functions.len(), 4);
    assert_eq!(faults(&bundle, "4"), "");
}

#[test]
fn names_outside_a_region_bundle_and_other_litter_do_not_count() {
    let bundle = in_folder(|dir| {
        let tree = Tree::new(dir, "a.aimodelc", &["h16c"]);
        let stem = stem("main", 0, 0);
        tree.region("h16c", &stem, None);
        tree.write(&format!("{}/{stem}.bc/h16c/{stem}.mlir.bc", package("h16c")), b"region");
        tree.write(&format!("{stem}.txt"), b"");
        let llir = format!("{}/binary_0.llir.bundle", package("h16c"));
        tree.write(&format!("{llir}/._{stem}2.bc"), b"");
        tree.write(&format!("{llir}/Manifest.json"), b"{}");
        tree.write(&format!("{}/binary_0.llir.bundle.txt/{stem}2.bc/x", package("h16c")), b"");
        tree
    });
    assert_eq!(faults(&bundle.unwrap(), "1"), "");
}

#[test]
fn a_gpu_bundle_has_none_and_its_manifest_agrees() {
    let bundle = in_folder(|dir| {
        let tree = Tree::new(dir, "a.aimodelc", &["h18p"]);
        let (symbol, attributes) = (symbol("main", 'h'), vec!["mps.aneAlignedIO"]);
        tree.manifest(
            "h18p",
            &Manifest {
                hashes: [("h18p", NO_REGIONS.to_string())].into(),
                entries: [(symbol.as_str(), attributes)].into(),
                bundles: vec![],
            },
        );
        tree
    });
    let bundle = bundle.unwrap();
    assert_eq!(counted(&bundle), ["h18p main_hhhhhh\u{2026}_0: 0 (0 + )"]);
    let h18p = &bundle.architectures["h18p"];
    let signals: Vec<String> = h18p
        .signals
        .iter()
        .map(|s| format!("{}: {}, {}", s.kind.name(), s.says.text(), h18p.agreement(s).name()))
        .collect();
    insta::assert_snapshot!(signals.join("\n"), @r"
    placement flags: neither flag is set, unknown
    region hash: no region, agrees
    statistics: it counts the graph before placement, unknown
    ");
    assert_eq!(faults(&bundle, "0"), "");
    insta::assert_snapshot!(faults(&bundle, "1"), @"h18p: 0 regions found, 1 expected");
}

#[test]
fn signals_that_disagree_fail_the_bundle() {
    let (main, other) = (symbol("main", 'h'), symbol("other", 'k'));
    let some = format!("{0}_{0}", "1".repeat(64));
    let placed = || vec!["mps.fullyPlacedOnANE", "mps.noGPUActivity"];
    let found = |regions: usize, manifest: Manifest<'_>| {
        let bundle = in_folder(|dir| {
            let tree = Tree::new(dir, "a.aimodelc", &["h16c"]);
            (0..regions).for_each(|i| tree.region("h16c", &stem("main", i, 0), None));
            tree.manifest("h16c", &manifest);
            tree
        });
        faults(&bundle.unwrap(), &regions.to_string())
    };
    let hash = |hash: &str| Manifest { hashes: [("h16c", hash.to_string())].into(), ..Manifest::default() };
    let flags = |symbol| Manifest { entries: [(symbol, placed())].into(), ..Manifest::default() };
    let llir = || Manifest { bundles: vec!["binary_0.llir.bundle", "other.bin"], ..Manifest::default() };
    insta::assert_snapshot!(found(1, hash(NO_REGIONS)), @"h16c: region hash (CB3FA77A6B0458BC550AB7C272729A68FA6D74ED03463EC907576A0DD82B027D_E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855) says no region, but 1 were counted");
    insta::assert_snapshot!(found(0, hash(&some)), @"h16c: region hash (1111111111111111111111111111111111111111111111111111111111111111_1111111111111111111111111111111111111111111111111111111111111111) says regions, but 0 were counted");
    insta::assert_snapshot!(found(0, flags(&main)), @"h16c main_hhhhhh…_0: placement flags (mps.fullyPlacedOnANE, mps.noGPUActivity) says regions, but 0 were counted");
    insta::assert_snapshot!(found(1, flags(&other)), @"h16c other_kkkkkk…_0: placement flags (mps.fullyPlacedOnANE, mps.noGPUActivity) says regions, but 0 were counted");
    insta::assert_snapshot!(found(0, llir()), @"h16c: region bundle (binary_0.llir.bundle) says regions, but 0 were counted");
    assert_eq!(found(2, hash(&some)), "");
    assert_eq!(found(2, flags(&main)), "");
    assert_eq!(found(2, llir()), "");
    assert_eq!(found(2, Manifest::default()), "", "what is absent is unknown");
}

#[test]
fn damaged_files_fail_the_bundle() {
    let found = |path: &str, bytes: &[u8]| {
        let bundle = in_folder(|dir| {
            let tree = Tree::new(dir, "a.aimodelc", &["h16c"]);
            tree.write(path, bytes);
            tree
        });
        faults(&bundle.unwrap(), "0")
    };
    let manifest = format!("{}/manifest.plist", package("h16c"));
    insta::assert_snapshot!(found(&manifest, b"bplist00"), @"h16c: manifest.plist cannot be read: it is no XML property list: UnexpectedXmlCharactersExpectedElement (offset 8)");
    insta::assert_snapshot!(found("stats.json", b"{"), @"h16c: stats.json cannot be read: EOF while parsing an object at line 1 column 1");
    insta::assert_snapshot!(found("main.hash", b"0"), @"main.hash is wrong: 1 bytes long, expected 32");
    insta::assert_snapshot!(found("main-h16c.mlirb", b"other"), @"main.hash is wrong: 77d09517c635c86fa0a6e542b54da896747ff95ed63a2a633728e6d2a61e26b1 is the digest of no stub; main-h16c.mlirb has d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa");
    assert_eq!(found("metadata.json", b"{"), "", "nothing rests on it");
}

#[test]
fn what_is_missing_or_linked_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path(), "a.aimodelc", &["h16c"]);
    let llir = tree.root.join(format!("{}/binary_0.llir.bundle", package("h16c")));
    fs_err::create_dir_all(llir.join(format!("{}.bc", stem("main", 0, 0)))).unwrap();
    tree.write(&format!("binary_0.llir.bundle/{}.bc/x", stem("main", 1, 0)), b"");
    std::os::unix::fs::symlink(&tree.root, llir.join("loop")).unwrap();
    std::os::unix::fs::symlink("itself", tree.root.join("itself")).unwrap();
    fs_err::remove_file(tree.root.join("main-h16c.mlirb")).unwrap();
    fs_err::remove_file(tree.root.join("main.hash")).unwrap();
    let bundle = CompiledBundle::open(&tree.root).unwrap();
    insta::assert_snapshot!(faults(&bundle, "1"), @r"
    itself is a link, which was not followed; a bundle with a link in it fails to load
    main-h16c-delegates/MPSGraph/mpsExecutable.mpsgraphpackage/binary_0.llir.bundle/loop is a link, which was not followed; a bundle with a link in it fails to load
    h16c: there is no main-h16c.mlirb
    h16c: region main_hhhhhhhhhhhhhhhhhhhhhh_0_ANE_region_0_0 holds no code
    region main_hhhhhhhhhhhhhhhhhhhhhh_0_ANE_region_1_0 is in no architecture's folder and was not counted
    ");
}

#[test]
fn a_link_to_a_bundle_is_resolved_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path(), "a.aimodelc", &["h16c"]);
    let link = dir.path().join("link.aimodelc");
    std::os::unix::fs::symlink(&tree.root, &link).unwrap();
    let bundle = |path: &std::path::Path| CompiledBundle::open(path).unwrap();
    assert!(!bundle(&tree.root).linked);
    for path in [link.clone(), link.join("")] {
        assert!(bundle(&path).linked);
        assert_eq!(bundle(&path).name, "a.aimodelc");
    }
}

#[test]
fn folders_that_are_no_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display().to_string();
    let error = |tree: &Tree| {
        let error = CompiledBundle::open(&tree.root).unwrap_err();
        error.to_string().replace(&here, "DIR")
    };
    let broken = |name: &str, path: &str, folder: bool| {
        let tree = Tree::new(dir.path(), name, &["h16c"]);
        tree.region("h16c", &stem("main", 0, 0), None);
        let full = tree.root.join(path);
        let _ = fs_err::remove_file(&full);
        let _ = fs_err::remove_dir_all(&full);
        if folder {
            fs_err::create_dir_all(&full).unwrap()
        } else {
            fs_err::write(&full, "").unwrap()
        }
        error(&tree)
    };
    let llir = format!("{}/binary_0.llir.bundle", package("h16c"));
    let region = stem("main", 0, 0);
    insta::assert_snapshot!(error(&Tree::empty(dir.path(), "empty.aimodelc")), @"DIR/empty.aimodelc is an empty folder, no compiled bundle");
    let other = Tree::empty(dir.path(), "other");
    other.write("main-.mlirb", b"");
    insta::assert_snapshot!(error(&other), @"DIR/other is no compiled bundle: it has no main-ARCHITECTURE.mlirb and no main-ARCHITECTURE-delegates");
    insta::assert_snapshot!(error(&Tree { root: other.root.join("main-.mlirb") }), @"DIR/other/main-.mlirb is a file; a compiled bundle is a folder");
    insta::assert_snapshot!(error(&Tree { root: other.root.join("absent") }), @"could not read DIR/other/absent");
    insta::assert_snapshot!(broken("a", "main-h16c-delegates", false), @"main-h16c-delegates in the bundle is of the wrong kind; a folder was expected");
    insta::assert_snapshot!(broken("b", &llir, false), @"main-h16c-delegates/MPSGraph/mpsExecutable.mpsgraphpackage/binary_0.llir.bundle in the bundle is of the wrong kind; a folder was expected");
    insta::assert_snapshot!(broken("c", &format!("{llir}/{region}.bc"), false), @"main-h16c-delegates/MPSGraph/mpsExecutable.mpsgraphpackage/binary_0.llir.bundle/main_hhhhhhhhhhhhhhhhhhhhhh_0_ANE_region_0_0.bc in the bundle is of the wrong kind; a folder was expected");
    insta::assert_snapshot!(broken("d", &format!("{llir}/{region}.bc/h16c/{region}.mlir.bc"), true), @"main-h16c-delegates/MPSGraph/mpsExecutable.mpsgraphpackage/binary_0.llir.bundle/main_hhhhhhhhhhhhhhhhhhhhhh_0_ANE_region_0_0.bc/h16c/main_hhhhhhhhhhhhhhhhhhhhhh_0_ANE_region_0_0.mlir.bc in the bundle is of the wrong kind; a file was expected");
    insta::assert_snapshot!(broken("e", "main-h16c.mlirb", true), @"main-h16c.mlirb in the bundle is of the wrong kind; a file was expected");
    insta::assert_snapshot!(broken("f", "main.hash", true), @"main.hash in the bundle is of the wrong kind; a file was expected");
    let looped = dir.path().join("loop.aimodelc");
    std::os::unix::fs::symlink(&looped, &looped).unwrap();
    insta::assert_snapshot!(error(&Tree { root: looped }), @"could not read DIR/loop.aimodelc");
}

#[test]
fn names_that_are_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path(), "a.aimodelc", &["h16c"]);
    fs_err::write(tree.root.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "").unwrap();
    let error = CompiledBundle::open(&tree.root).unwrap_err().to_string();
    insta::assert_snapshot!(error.replace(&dir.path().display().to_string(), "DIR"), @r#"the file name "DIR/a.aimodelc/caf\xE9" is not UTF-8"#);
}

#[test]
fn a_bundle_without_architectures_meets_no_expectation() {
    let bundle = in_folder(|dir| {
        let tree = Tree::empty(dir, "a.aimodelc");
        tree.write("metadata.json", b"{}");
        tree
    });
    let bundle = bundle.unwrap();
    for expectation in ["0", "h16c=0"] {
        assert!(faults(&bundle, expectation).contains("the bundle has no architecture"));
    }
}

#[test]
fn fifty_thousand_files() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path(), "a.aimodelc", &["h16c"]);
    for i in 0..25_000 {
        tree.region("h16c", &stem("main", i, 0), None);
        tree.write(&format!("{}/more/{}/{i}", package("h16c"), i % 100), b"");
    }
    let bundle = CompiledBundle::open(&tree.root).unwrap();
    assert_eq!((bundle.region_count(), bundle.files), (25_000, 50_005));
    assert_eq!(faults(&bundle, "25000"), "");
}

#[test]
fn identity_reads_the_weights_and_the_hash_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let identity = |name: &str, weights: &[u8]| {
        let tree = Tree::new(dir.path(), name, &["h16c"]);
        tree.write(&format!("{}/resources.bin", package("h16c")), weights);
        CompiledBundle::open(&tree.root).unwrap().identity().unwrap()
    };
    let [a, b, same] = [identity("a", b"1"), identity("b", b"2"), identity("c", b"1")];
    assert_eq!((a.main_hash, a.digest_root), (b.main_hash, same.digest_root));
    assert_ne!(a.digest_root, b.digest_root);
    assert_eq!(shared_hash(&[a.clone(), b, same.clone()]).len(), 1);
    assert!(shared_hash(&[a, same]).is_empty());
}
