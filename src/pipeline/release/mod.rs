//! Releases: each recipe authored, emitted, stripped, compiled where the compiler is, counted, judged, and put into a
//! folder of its own with a record that ties it all together.
//!
//! Every stage is kept by what it was made of ([`cache`]), so that a second run computes nothing and one that was killed
//! goes on where it ended. Nothing is published of a release whose gate failed.

mod cache;
mod compose;
mod error;
mod judge;
mod kit;
mod source;
mod stages;

pub(super) use cache::{CacheError, Workroom, link};
pub(super) use compose::{Known, seal};
pub use error::{ReleaseError, SourceError, StageError};
pub use kit::KitReport;
pub use stages::StageReport;

use super::{Progress, told};
use crate::checkpoint::LocateEnv;
use crate::digest::Digest;
use crate::emit::coreai::Bridge;
use crate::provenance::release::ReleaseRecord;
use crate::recipe::Recipe;
use crate::toolchain::{Interrupt, Search};
use cache::Cache;
use serde::Serialize;
use source::Source;
use stages::Stages;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Hidden folder of the destination for what is being made and for the cache.
pub(super) const HIDDEN: &str = ".release";

/// Its folder of workrooms.
pub(super) const ROOMS: &str = "work";

/// What to release, and how.
#[derive(Clone, Debug)]
pub struct ReleaseOptions {
    /// Recipes, and folders of such.
    pub recipes: Vec<PathBuf>,
    /// The folder that takes a folder for each release.
    pub out: PathBuf,
    /// Where stages are kept; a hidden folder of `out` where it is not said.
    pub cache: Option<PathBuf>,
    /// The releases to make of those, by name; all where none is named.
    pub only: Vec<String>,
    /// The part of them to make.
    pub shard: Shard,
    /// How many at once.
    pub jobs: usize,
    /// Make those too whose recipe has not every source digest.
    pub allow_unpinned: bool,
    /// Replace other releases of the same names.
    pub force: bool,
    /// Pack each for a Mac too.
    pub kit: bool,
    /// The checkpoint of encoders, where the recipe names none.
    pub checkpoint: Option<PathBuf>,
    /// The config of readers, where the recipe names none.
    pub reader_config: Option<PathBuf>,
    /// Where checkpoints are looked for.
    pub surroundings: LocateEnv,
}

/// One of several equal parts of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 1.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { index: 1, of: 1 };

    /// Whether the item at that place is in this part.
    pub const fn has(self, at: usize) -> bool {
        at % self.of == self.index - 1
    }
}

/// A release that was made, or was there.
#[derive(Debug, Serialize)]
pub struct Release {
    /// Its name.
    pub name: String,
    /// Its folder.
    #[serde(serialize_with = "told::shown")]
    pub path: PathBuf,
    /// `published` or `unchanged`.
    pub outcome: &'static str,
    /// Whether every stage was taken from the cache and the folder was there.
    pub no_work: bool,
    /// What became of its kit, where one was asked for.
    pub kit: Option<KitReport>,
    /// What each stage took.
    pub stages: Vec<StageReport>,
    /// The record.
    pub record: ReleaseRecord,
}

/// Makes the releases.
///
/// # Errors
/// A recipe cannot be used, or two of them release into one folder: nothing is made then. Or a stage of a release
/// failed: those that were finished before stay, and the others are finished.
pub fn release(
    options: &ReleaseOptions,
    search: &Search,
    interrupt: &Interrupt,
    progress: &dyn Progress,
) -> Result<Vec<Result<Release, ReleaseError>>, ReleaseError> {
    let recipes = chosen(options)?;
    let program = std::env::current_exe().and_then(|path| Digest::of_file(&path));
    let (program, _) = program.map_err(|source| ReleaseError::Program { source })?;
    let room = Workroom::open(&options.out.join(HIDDEN).join(ROOMS))?;
    let cache = Cache::open(&options.cache.clone().unwrap_or_else(|| options.out.join(HIDDEN).join("cache")))?;
    let bridge = Bridge::find(interrupt);
    let shared = Shared { options, program, room, cache, bridge, search, interrupt, progress };
    let next = AtomicUsize::new(0);
    let made: Mutex<Vec<(&str, Result<Release, ReleaseError>)>> = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..options.jobs.clamp(1, recipes.len().max(1)) {
            threads.spawn(|| {
                while let Some(recipe) = recipes.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let result = shared.release(recipe);
                    if let Ok(mut made) = made.lock() {
                        made.push((&recipe.name, result.map_err(|source| named(recipe, source))));
                    }
                }
            });
        }
    });
    let mut made = made.into_inner().map_err(|_| ReleaseError::Thread)?;
    if made.len() != recipes.len() {
        return Err(ReleaseError::Thread);
    }
    made.sort_by_key(|(name, _)| *name);
    Ok(made.into_iter().map(|(_, result)| result).collect())
}

fn named(recipe: &Recipe, source: StageError) -> ReleaseError {
    ReleaseError::Stage { name: recipe.name.clone(), source: Box::new(source) }
}

/// What all releases of a call share.
struct Shared<'a> {
    options: &'a ReleaseOptions,
    program: Digest,
    room: Workroom,
    cache: Cache,
    bridge: Option<Bridge>,
    search: &'a Search,
    interrupt: &'a Interrupt,
    progress: &'a dyn Progress,
}

impl Shared<'_> {
    fn release(&self, recipe: &Recipe) -> Result<Release, StageError> {
        let started = Instant::now();
        let source = Source::of(recipe, self.options)?;
        let seconds = started.elapsed().as_secs_f64();
        // Hashed in every run: what the cache has is by what the files hold.
        let hashed = StageReport { stage: "source", artefact: None, reused: true, seconds };
        let stages = Stages {
            recipe,
            source: &source,
            cache: &self.cache,
            program: self.program,
            bridge: self.bridge.as_ref(),
            search: self.search,
            interrupt: self.interrupt,
            progress: self.progress,
            reports: RefCell::new(vec![hashed]),
        };
        let ReleaseOptions { out, force, kit, .. } = self.options;
        let (record, outcome) = stages.release(out, &self.room, *force)?;
        let kit = if *kit { Some(stages.kit(&record, out, &self.room, *force)?) } else { None };
        let stages = stages.reports.into_inner();
        let no_work = stages.iter().all(|stage| stage.reused);
        let path = out.join(&recipe.name);
        Ok(Release { name: recipe.name.clone(), path, outcome, no_work, kit, stages, record })
    }
}

/// The recipes to release, sorted by name.
fn chosen(options: &ReleaseOptions) -> Result<Vec<Recipe>, ReleaseError> {
    let mut recipes: Vec<(Recipe, PathBuf)> = Vec::new();
    for path in files(&options.recipes)? {
        let recipe = Recipe::read(&path)?;
        // A folder's name has one case only on many file systems.
        let taken = |a: &str, b: &str| options.kit && a.eq_ignore_ascii_case(&kit::kit_name(b));
        let same = |(other, _): &&(Recipe, PathBuf)| {
            let (a, b) = (other.name.as_str(), recipe.name.as_str());
            a.eq_ignore_ascii_case(b) || taken(a, b) || taken(b, a)
        };
        if let Some((_, first)) = recipes.iter().find(same) {
            let (name, first) = (recipe.name.clone(), first.clone());
            return Err(ReleaseError::OneFolder { name, first, second: path });
        }
        recipes.push((recipe, path));
    }
    let mut recipes: Vec<Recipe> = recipes.into_iter().map(|(recipe, _)| recipe).collect();
    recipes.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(name) = options.only.iter().find(|name| recipes.iter().all(|recipe| recipe.name != **name)) {
        let have = recipes.iter().map(|recipe| recipe.name.clone()).collect();
        return Err(ReleaseError::Only { name: name.clone(), have });
    }
    let wanted = |recipe: &Recipe| options.only.is_empty() || options.only.contains(&recipe.name);
    let part = recipes.into_iter().filter(wanted).enumerate().filter(|(at, _)| options.shard.has(*at));
    Ok(part.map(|(_, recipe)| recipe).collect())
}

/// Every file given, and every recipe of the folders among them.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, ReleaseError> {
    let mut found = Vec::new();
    for path in given {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let io = |source| ReleaseError::Folder { path: path.clone(), source };
        let entries = std::fs::read_dir(path).map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?;
        let has = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "toml");
        let mut inside: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).filter(has).collect();
        if inside.is_empty() {
            return Err(ReleaseError::NoRecipes { path: path.clone() });
        }
        inside.sort();
        found.extend(inside);
    }
    Ok(found)
}
