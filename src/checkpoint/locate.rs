//! Where a checkpoint is looked for when none is named.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Weights in a public repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its name.
    pub repository: &'static str,
    /// The revision that the goldens and gates belong to, or its first digits.
    pub revision: &'static str,
}

/// The encoder's.
pub const EMBEDDING_GEMMA2: Published = Published { repository: "google/embeddinggemma-2", revision: "914f7f89" };

/// The decision model's: the multilingual one, of 22 layers.
pub const LAYA: Published = Published { repository: "convaiinnovations/laya-multilingual", revision: "052592a1" };

/// What the search asks of its surroundings, apart from them so that a test can set it.
#[derive(Clone, Debug, Default)]
pub struct LocateEnv {
    /// `$EG2_CHECKPOINT`.
    pub checkpoint: Option<OsString>,
    /// `$HF_HUB_CACHE`.
    pub hub_cache: Option<OsString>,
    /// `$HF_HOME`.
    pub hf_home: Option<OsString>,
    /// `$HOME`.
    pub home: Option<OsString>,
    /// The folder that `./model.safetensors` is in.
    pub here: PathBuf,
}

impl LocateEnv {
    /// The surroundings of this process.
    pub fn from_process() -> LocateEnv {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        LocateEnv {
            checkpoint: var("EG2_CHECKPOINT"),
            hub_cache: var("HF_HUB_CACHE"),
            hf_home: var("HF_HOME"),
            home: var("HOME"),
            here: PathBuf::new(),
        }
    }

    fn hub(&self) -> Option<PathBuf> {
        let under = |base: &OsString, rest: &str| Path::new(base).join(rest);
        self.hub_cache
            .as_ref()
            .map(PathBuf::from)
            .or_else(|| self.hf_home.as_ref().map(|h| under(h, "hub")))
            .or_else(|| self.home.as_ref().map(|h| under(h, ".cache/huggingface/hub")))
    }
}

/// No checkpoint was found; the message lists every place and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no checkpoint found. Looked at:\n{}Get the published weights with `hf download {repository} --revision {revision}`, \
     name a file or folder with --checkpoint, or try the job on seeded weights with --synthetic",
    .looked.iter().map(|l| format!("  {l}\n")).collect::<String>()
)]
pub struct NotFound {
    /// Each place looked at, and what was there.
    pub looked: Vec<String>,
    /// The repository to get it from.
    pub repository: &'static str,
    /// The revision wanted.
    pub revision: String,
}

/// The checkpoint to convert: the one named, else `$EG2_CHECKPOINT`, else `./model.safetensors`, else the Hugging Face
/// cache at the pinned revision of `published`, or at `revision` in its place (the first digits of a commit).
///
/// # Errors
/// None of them is there. A name that was given is not replaced by the next place.
pub fn locate(
    explicit: Option<&Path>,
    env: &LocateEnv,
    published: Published,
    revision: Option<&str>,
) -> Result<PathBuf, NotFound> {
    let Published { repository, revision: pinned_revision } = published;
    let revision = revision.unwrap_or(pinned_revision);
    let not_found = |looked| NotFound { looked, repository, revision: revision.into() };
    let given = explicit
        .map(|p| ("--checkpoint", p.to_path_buf()))
        .or_else(|| env.checkpoint.as_ref().map(|p| ("$EG2_CHECKPOINT", PathBuf::from(p))));
    if let Some((by, path)) = given {
        return if path.exists() {
            Ok(path)
        } else {
            Err(not_found(vec![format!("{} ({by}): absent", path.display())]))
        };
    }
    let mut looked = vec!["--checkpoint: not given".into(), "$EG2_CHECKPOINT: not set".into()];
    let local = env.here.join("model.safetensors");
    if local.exists() {
        return Ok(local);
    }
    looked.push(format!(
        "{}: absent",
        if env.here.as_os_str().is_empty() { Path::new("./model.safetensors") } else { &local }.display()
    ));
    match env.hub() {
        None => looked.push("the Hugging Face cache: $HOME is not set".into()),
        Some(hub) => {
            let snapshots = hub.join(format!("models--{}", repository.replace('/', "--"))).join("snapshots");
            match pinned(&snapshots, revision) {
                Ok(path) => return Ok(path),
                Err(found) => looked.push(format!("{}: {found}", snapshots.display())),
            }
        }
    }
    Err(not_found(looked))
}

/// The snapshot of that revision, or what is there instead.
fn pinned(snapshots: &Path, revision: &str) -> Result<PathBuf, String> {
    let Ok(entries) = std::fs::read_dir(snapshots) else { return Err("absent".into()) };
    let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    match names.iter().find(|n| n.starts_with(revision)) {
        Some(name) => Ok(snapshots.join(name)),
        None if names.is_empty() => Err("empty".into()),
        None => Err(format!("has {} but not {revision}…; name it with --checkpoint to use it", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, "").unwrap();
    }

    #[test]
    fn places_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |p: &str| dir.path().join(p);
        let mut env = LocateEnv { here: at("here"), home: Some(at("home").into()), ..LocateEnv::default() };
        let nothing = locate(None, &env, EMBEDDING_GEMMA2, None).unwrap_err();
        assert_eq!(nothing.looked.len(), 4);

        let snapshots = "home/.cache/huggingface/hub/models--google--embeddinggemma-2/snapshots";
        touch(&at(snapshots).join("0000aaaa/model.safetensors"));
        let other = locate(None, &env, EMBEDDING_GEMMA2, None).unwrap_err();
        assert!(other.looked[3].ends_with("has 0000aaaa but not 914f7f89…; name it with --checkpoint to use it"));
        touch(&at(snapshots).join("914f7f89bb/model.safetensors"));
        assert_eq!(locate(None, &env, EMBEDDING_GEMMA2, None).unwrap(), at(snapshots).join("914f7f89bb"));
        touch(&at("here/model.safetensors"));
        assert_eq!(locate(None, &env, EMBEDDING_GEMMA2, None).unwrap(), at("here/model.safetensors"));
        touch(&at("by-env"));
        env.checkpoint = Some(at("by-env").into());
        assert_eq!(locate(None, &env, EMBEDDING_GEMMA2, None).unwrap(), at("by-env"));
        touch(&at("named"));
        assert_eq!(locate(Some(&at("named")), &env, EMBEDDING_GEMMA2, None).unwrap(), at("named"));
        assert!(
            locate(Some(&at("absent")), &env, EMBEDDING_GEMMA2, None).is_err(),
            "a name that was given is not replaced"
        );
    }

    #[test]
    fn the_message_says_where_and_how() {
        let env = LocateEnv { here: "folder".into(), ..LocateEnv::default() };
        insta::assert_snapshot!(locate(None, &env, EMBEDDING_GEMMA2, None).unwrap_err(), @r"
        no checkpoint found. Looked at:
          --checkpoint: not given
          $EG2_CHECKPOINT: not set
          folder/model.safetensors: absent
          the Hugging Face cache: $HOME is not set
        Get the published weights with `hf download google/embeddinggemma-2 --revision 914f7f89`, name a file or folder with --checkpoint, or try the job on seeded weights with --synthetic
        ");
    }
}
