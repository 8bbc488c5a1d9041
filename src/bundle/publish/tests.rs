use super::*;

fn made(destination: &Path, content: &str, replace: Replace) -> Result<Outcome, PublishError> {
    let stage = Stage::new(destination, 1)?;
    fs_err::write(stage.path().join("file"), content).unwrap();
    let tree = Tree::of(stage.path())?;
    Ok(commit(vec![(stage, &tree)], replace)?[0])
}

/// What is in a directory, hidden folders too.
fn listed(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs_err::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn published_unchanged_refused_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("deep/er/b.mlpackage");
    let content = || fs_err::read_to_string(bundle.join("file")).unwrap();
    assert_eq!(made(&bundle, "1", Replace::Never).unwrap(), Outcome::Published);
    assert_eq!(made(&bundle, "1", Replace::Never).unwrap(), Outcome::Unchanged);
    assert_eq!(made(&bundle, "1", Replace::Force).unwrap(), Outcome::Unchanged);
    assert!(matches!(made(&bundle, "2", Replace::Never), Err(PublishError::Exists { .. })));
    assert_eq!(content(), "1");
    assert_eq!(made(&bundle, "2", Replace::Force).unwrap(), Outcome::Published);
    assert_eq!(content(), "2");
    assert_eq!(listed(bundle.parent().unwrap()), ["b.mlpackage"], "nothing stays behind");
}

#[test]
fn a_bundle_made_under_another_name_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(&dir.path().join("b"), 1).unwrap();
    let made = stage.workshop().unwrap().join("other");
    assert!(matches!(stage.adopt(&made), Err(PublishError::Rename { .. })), "there is none yet");
    fs_err::create_dir(&made).unwrap();
    fs_err::write(made.join("file"), "1").unwrap();
    stage.adopt(&made).unwrap();
    let tree = Tree::of(stage.path()).unwrap();
    assert_eq!(commit(vec![(stage, &tree)], Replace::Never).unwrap(), [Outcome::Published]);
    assert_eq!(fs_err::read_to_string(dir.path().join("b/file")).unwrap(), "1");
    assert_eq!(listed(dir.path()), ["b"]);
}

#[test]
fn a_bundle_given_up_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(&dir.path().join("b"), 1).unwrap();
    assert!(listed(dir.path())[0].starts_with(".b."));
    drop(stage);
    assert!(listed(dir.path()).is_empty());
}

#[test]
fn what_is_no_bundle_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b");
    fs_err::write(&file, "mine").unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for replace in [Replace::Never, Replace::Force] {
        for path in [&file, &pipe] {
            assert!(matches!(made(path, "1", replace), Err(PublishError::NotFolder { .. })));
        }
    }
    let told = made(&file, "1", Replace::Force).unwrap_err().to_string();
    insta::assert_snapshot!(told.replace(dir.path().to_str().unwrap(), ""), @"/b is a file, expected a bundle's folder or nothing; remove it, or name another place");
    assert_eq!(fs_err::read_to_string(&file).unwrap(), "mine");
    assert!(pipe.exists());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(matches!(made(&link, "1", Replace::Force), Err(PublishError::Link { .. })));
}

#[test]
fn places_that_cannot_take_it() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::write(dir.path().join("file"), "").unwrap();
    let err = Stage::new(&dir.path().join("file/b"), 1).unwrap_err();
    assert!(matches!(err, PublishError::Unwritable { .. }), "{err}");
    let err = Stage::new(&dir.path().join("b"), u64::MAX).unwrap_err();
    assert!(matches!(err, PublishError::Space { needed: u64::MAX, .. }), "{err}");
    assert!(matches!(Stage::new(Path::new("/"), 1), Err(PublishError::NoName { .. })));
    assert_eq!(listed(dir.path()), ["file"]);
}

#[test]
fn bundles_that_belong_together_are_all_published_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let pair = |names: [&str; 2], content: &str, replace, lose: &str| {
        let stages = names.map(|name| Stage::new(&at(name), 1).unwrap());
        let trees = stages.each_ref().map(|stage| {
            fs_err::write(stage.path().join("file"), content).unwrap();
            Tree::of(stage.path()).unwrap()
        });
        for stage in stages.iter().filter(|s| s.path().ends_with(lose)) {
            fs_err::remove_dir_all(stage.path()).unwrap();
        }
        commit(stages.into_iter().zip(&trees).collect(), replace)
    };
    assert!(matches!(pair(["a", "b"], "1", Replace::Never, "b"), Err(PublishError::Rename { .. })));
    assert!(listed(dir.path()).is_empty(), "the first is withdrawn");
    assert_eq!(pair(["a", "b"], "1", Replace::Never, "none").unwrap(), [Outcome::Published; 2]);
    assert!(matches!(pair(["c", "b"], "2", Replace::Never, "none"), Err(PublishError::Exists { .. })));
    assert!(matches!(pair(["a", "b"], "2", Replace::Force, "b"), Err(PublishError::Rename { .. })));
    assert_eq!(listed(dir.path()), ["a", "b"]);
    for name in ["a", "b"] {
        assert_eq!(fs_err::read_to_string(at(name).join("file")).unwrap(), "1", "{name} is the old one");
    }
    let found = pair(["a", "c"], "1", Replace::Never, "none").unwrap();
    assert_eq!(found, [Outcome::Unchanged, Outcome::Published]);
}

#[test]
fn a_failed_exchange_is_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("b");
    made(&bundle, "1", Replace::Never).unwrap();
    let stage = Stage::new(&bundle, 1).unwrap();
    fs_err::write(stage.path().join("file"), "2").unwrap();
    let tree = Tree::of(stage.path()).unwrap();
    fs_err::remove_dir_all(stage.path()).unwrap();
    assert!(matches!(commit(vec![(stage, &tree)], Replace::Force), Err(PublishError::Rename { .. })));
    assert_eq!(fs_err::read_to_string(bundle.join("file")).unwrap(), "1");
    assert_eq!(listed(dir.path()), ["b"]);
}

/// A stage for `destination` with a file in it, and the file's tree.
fn staged(destination: &Path, content: &str) -> (Stage, Tree) {
    let stage = Stage::new(destination, 1).unwrap();
    fs_err::write(stage.path().join("file"), content).unwrap();
    let tree = Tree::of(stage.path()).unwrap();
    (stage, tree)
}

#[test]
fn the_old_bundle_is_there_until_the_new_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("b");
    let content = || fs_err::read_to_string(bundle.join("file"));
    made(&bundle, "1", Replace::Never).unwrap();
    let (done, stop) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|threads| {
        let watcher = threads.spawn(|| {
            let mut seen = 0;
            // A folder that is looked up by its path: a file in it may be removed between the look-up and the read.
            while !done.load(stop) {
                assert!(bundle.symlink_metadata().is_ok(), "gone after {seen} looks");
                seen += 1;
            }
        });
        for round in 0..200 {
            assert_eq!(made(&bundle, &round.to_string(), Replace::Force).unwrap(), Outcome::Published);
        }
        done.store(true, stop);
        watcher.join().unwrap();
    });
    assert_eq!(content().unwrap(), "199");
    assert_eq!(listed(dir.path()), ["b"]);
}

#[test]
fn an_exchange_is_undone_either_way() {
    for at_once in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("b");
        let content = || fs_err::read_to_string(bundle.join("file")).unwrap();
        made(&bundle, "1", Replace::Never).unwrap();
        let (mut stage, _) = staged(&bundle, "2");
        if at_once {
            stage.exchange().unwrap()
        } else {
            stage.exchange_by_renames().unwrap()
        }
        assert_eq!((content(), stage.exchanged), ("2".into(), at_once));
        stage.undo(Step::Exchange).unwrap();
        assert_eq!(content(), "1");
        drop(stage);
        assert_eq!(listed(dir.path()), ["b"]);
    }
}

#[test]
fn two_renames_of_which_the_second_fails_are_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("b");
    made(&bundle, "1", Replace::Never).unwrap();
    let (mut stage, _) = staged(&bundle, "2");
    fs_err::remove_dir_all(stage.path()).unwrap();
    assert!(matches!(stage.exchange_by_renames(), Err(PublishError::Rename { .. })));
    drop(stage);
    assert_eq!(fs_err::read_to_string(bundle.join("file")).unwrap(), "1");
    assert_eq!(listed(dir.path()), ["b"]);
}

#[test]
fn what_came_after_the_check_is_looked_at_again() {
    let cases = [("1", Replace::Never, true), ("2", Replace::Never, false), ("2", Replace::Force, true)];
    for (theirs, replace, good) in cases {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("b");
        let (mut stage, tree) = staged(&bundle, "1");
        let mut step = stage.step(&tree, replace).unwrap();
        assert_eq!(step, Step::Place);
        made(&bundle, theirs, Replace::Never).unwrap();
        let taken = stage.take(&mut step, &tree, replace);
        match (theirs, good) {
            ("1", _) => assert_eq!((taken.unwrap(), step), (Outcome::Unchanged, Step::Leave)),
            (_, true) => assert_eq!((taken.unwrap(), step), (Outcome::Published, Step::Exchange)),
            (_, false) => assert!(matches!(taken, Err(PublishError::Exists { .. }))),
        }
        drop(stage);
        let now = if good { "1" } else { theirs };
        assert_eq!(fs_err::read_to_string(bundle.join("file")).unwrap(), now);
        assert_eq!(listed(dir.path()), ["b"]);
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut stage, tree) = staged(&dir.path().join("b"), "1");
    fs_err::write(dir.path().join("b"), "mine").unwrap();
    let taken = stage.take(&mut Step::Place, &tree, Replace::Force);
    assert!(matches!(taken, Err(PublishError::NotFolder { .. })));
}
