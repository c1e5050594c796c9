//! The catalogue: all knowledge of this crate, from the built-in files and from those that a person adds.
//!
//! What every line needs (classes, codes, signatures) is read when the catalogue is made; taxonomies and the places beyond the
//! five primary ones are read when somebody asks for them. The built-in files are checked as a whole by this crate's tests
//! ([`Catalogue::load`]), a person's files whenever they are read ([`Catalogue::with_files`]).
//!
//! A catalogue never changes. Reload means: make a new one, compare [`Catalogue::version`], and if it differs make a new
//! matcher (`Matcher::new(&catalogue)`) and hand it to the streams; what a stream has seen is its own and stays.

mod build;
mod builtin;
mod domain;
mod files;
mod read;
mod signatures;
mod studies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use rankguard_model::{ByName, ClassId, Mitigation, Shared};

use crate::class::Class;
use crate::code::CodeTable;
use crate::mistake::{self, CatalogueError, Mistake};
use crate::signature::Signature;
use crate::taxonomy::Taxonomy;

use build::Parts;
use builtin::{CROSSWALK, SIGNATURES, TAXONOMIES, WORDS};
use read::{Entries, Map};
use studies::Volume;

pub use builtin::PRIMARY;
pub use files::{CatalogueFile, CatalogueFilesError};
pub use read::Reference;
pub(crate) use signatures::SIGNATURE_LIMIT;

/// All classes, taxonomies, codes and signatures.
#[derive(Debug, Clone)]
pub struct Catalogue {
    parts: Parts,
    /// Classes by their ids and aliases: diagnosis asks for those of every piece of evidence.
    named: ByName<ClassId, Arc<Class>>,
    signatures: Vec<Signature>,
    shelf: Vec<Volume>,
    /// Places beyond the primary taxonomies that a person's files name.
    added: BTreeMap<ClassId, Map>,
    /// The built-in places beyond the primary taxonomies.
    crosswalk: OnceLock<BTreeMap<String, Map>>,
    /// Digest of the files that a person added.
    added_digest: u64,
}

/// How much is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// The built-in files are taken as the tests left them.
    Trust,
    /// Every file is read exactly.
    Full,
}

impl Catalogue {
    /// The catalogue that is built into the program.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Catalogue> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            Self::make(&[], Care::Trust).expect("the built-in catalogue is checked by this crate's tests")
        })
    }

    /// Reads all built-in files at once and checks everything that can be checked. Slow; for tests.
    pub fn load() -> Result<Self, CatalogueError> {
        Self::make(&[], Care::Full)
    }

    /// The built-in catalogue with what a person adds. `files` are names, which mistakes repeat, and texts.
    ///
    /// A file holds `[[class]]`, `[[signature]]`, `[[xid]]`, `[[sxid]]`, `[[source]]`, `[[action]]`, `[[taxonomy]]` and
    /// `[map.CLASS]` as the built-in files do, or is one taxonomy (`schema = "failure-taxonomy/1"`), whose categories name
    /// their `classes`. An entry with the id of one that exists needs `replaces = "ID"`. All mistakes come back at once.
    pub fn with_files(files: &[(&str, &str)]) -> Result<Self, CatalogueError> {
        Self::make(files, Care::Trust)
    }

    fn make(files: &[(&str, &str)], care: Care) -> Result<Self, CatalogueError> {
        let mut entries = Entries::default();
        let mut mistakes = Vec::new();
        let exact = care == Care::Full;
        for (file, text) in WORDS.iter().chain(SIGNATURES) {
            read::read(file, text, exact, &mut entries, &mut mistakes);
        }
        let mut shelf = Vec::new();
        if exact {
            for (_, file, text) in TAXONOMIES {
                read::read(file, text, true, &mut entries, &mut mistakes);
            }
            read::read(CROSSWALK.0, CROSSWALK.1, true, &mut entries, &mut mistakes);
        } else {
            shelf = studies::builtin();
        }
        for (file, text) in files {
            read::read(file, text, true, &mut entries, &mut mistakes);
        }
        let read = std::mem::take(&mut entries.taxonomies);
        studies::shelve(read.clone(), &mut shelf, &mut mistakes);
        studies::place_classes(&mut entries, &read, &shelf, &mut mistakes);
        let signatures = std::mem::take(&mut entries.signatures);
        let added = studies::further(&entries.classes);
        let parts = build::build(&mut entries, &mut mistakes);
        let signatures = signatures::check(signatures, &parts, &mut mistakes);
        let catalogue = Self {
            named: parts.named(),
            parts,
            signatures,
            shelf,
            added,
            crosswalk: OnceLock::new(),
            added_digest: digest(files.iter().map(|(_, text)| *text)),
        };
        for study in &read {
            let taxonomy = &study.value.taxonomy;
            let reached = catalogue.reached(&taxonomy.id);
            for category in studies::unreached(taxonomy, &reached) {
                let index = taxonomy.categories.iter().position(|c| c.id == category.id);
                let place = index.and_then(|index| study.value.lists.categories.get(index));
                let what = format!("no class leads to {} of {}", category.id, taxonomy.id);
                let help = "name its classes = [...], or say unreachable = \"why\"".to_owned();
                mistakes.push(place.unwrap_or(&study.place).mistake("category", what, help));
            }
        }
        if mistakes.is_empty() {
            return Ok(catalogue);
        }
        let file_of = |mistake: &Mistake| files.iter().position(|(file, _)| *file == mistake.file);
        mistakes.sort_by_key(|mistake| (file_of(mistake), mistake.line));
        mistakes.dedup();
        Err(CatalogueError { mistakes })
    }

    fn reached(&self, taxonomy: &str) -> BTreeSet<String> {
        let places = self
            .parts
            .classes
            .keys()
            .filter_map(|class| self.places_in(class, taxonomy));
        places.flatten().cloned().collect()
    }

    /// What this catalogue says, as 16 hexadecimal digits: the same for the same files, whatever their names.
    pub fn version(&self) -> String {
        static BUILTIN: OnceLock<u64> = OnceLock::new();
        let builtin = BUILTIN.get_or_init(|| {
            let files = WORDS
                .iter()
                .chain(SIGNATURES)
                .chain([&CROSSWALK])
                .map(|(_, text)| *text);
            digest(files.chain(TAXONOMIES.iter().map(|(_, _, text)| *text)))
        });
        format!("{:016x}", builtin ^ self.added_digest.rotate_left(1))
    }

    /// A number that tells catalogues of one program apart: the same for the same files, and asked without writing anything.
    pub fn edition(&self) -> u64 {
        self.added_digest
    }

    /// A class by its id or an alias; an `unknown-*` id that is not in the catalogue gets the class of its family, so that an
    /// unknown number still has advice (RG-10).
    pub fn class(&self, id: &ClassId) -> Option<&Class> {
        if let Some(class) = self.named.get(id) {
            return Some(class);
        }
        let family = ["unknown-xid", "unknown-sxid", "unknown"].into_iter().find(|family| {
            let rest = id.as_str().strip_prefix(family);
            rest.is_some_and(|rest| rest.starts_with('-'))
        })?;
        self.parts.classes.get(&ClassId::from(family)).map(Arc::as_ref)
    }

    /// All classes by id.
    pub fn classes(&self) -> impl Iterator<Item = &Class> {
        self.parts.classes.values().map(Arc::as_ref)
    }

    /// The wider classes above a class, the nearest first.
    pub fn ancestors(&self, id: &ClassId) -> impl Iterator<Item = &Class> {
        let parent = |class: &&Class| class.parent.as_ref().and_then(|parent| self.class(parent));
        std::iter::successors(self.class(id).and_then(|class| parent(&class)), parent)
    }

    /// The widest class that a class belongs to: itself, where it is a root.
    pub fn root_of(&self, id: &ClassId) -> Option<&Class> {
        self.ancestors(id).last().or_else(|| self.class(id))
    }

    /// The id by which labelled logs know a class: its own, or that of the nearest class they have.
    pub fn told_as<'c>(&'c self, id: &'c ClassId) -> &'c ClassId {
        self.class(id)
            .map_or(id, |class| class.told_as.as_ref().unwrap_or(&class.id))
    }

    /// The classes directly below a class.
    pub fn children(&self, id: &ClassId) -> impl Iterator<Item = &Class> {
        let id = self.class(id).map(|class| &class.id);
        self.classes()
            .filter(move |class| id.is_some() && class.parent.as_ref() == id)
    }

    /// The places of a class in the five primary taxonomies, most specific first. Every taxonomy has an entry for a class that
    /// is known; the map is empty for one that is not.
    pub fn taxonomies_of(&self, id: &ClassId) -> Shared<BTreeMap<String, Vec<String>>> {
        self.class(id).map(|class| class.taxonomies.clone()).unwrap_or_default()
    }

    /// The places of a class in one taxonomy, its own or those of a wider class; none where that study has no place for it.
    pub fn places_in(&self, id: &ClassId, taxonomy: &str) -> Option<&Vec<String>> {
        let class = self.class(id)?;
        if let Some(places) = class.taxonomies.get(taxonomy) {
            return Some(places);
        }
        let crosswalk = self.crosswalk.get_or_init(studies::crosswalk);
        let line = std::iter::once(class).chain(self.ancestors(id));
        line.into_iter().find_map(|class| {
            let added = self.added.get(&class.id).and_then(|map| map.get(taxonomy));
            added.or_else(|| crosswalk.get(class.id.as_str())?.get(taxonomy))
        })
    }

    /// What to do about a class; for one that is not in the catalogue, what to do about an unknown failure.
    pub fn mitigation(&self, id: &ClassId) -> Shared<Mitigation> {
        let class = self.class(id).or_else(|| self.class(&ClassId::from("unknown")));
        class.map(|class| class.mitigation.clone()).unwrap_or_default()
    }

    /// All taxonomies, the five primary ones first.
    pub fn taxonomies(&self) -> impl Iterator<Item = &Taxonomy> {
        self.shelf.iter().map(Volume::taxonomy)
    }

    /// Ids of all taxonomies, the five primary ones first; reads none of them.
    pub fn taxonomy_ids(&self) -> impl Iterator<Item = &str> {
        self.shelf.iter().map(|volume| volume.id.as_str())
    }

    /// One taxonomy.
    pub fn taxonomy(&self, id: &str) -> Option<&Taxonomy> {
        let volume = self.shelf.iter().find(|volume| volume.id == id);
        volume.map(Volume::taxonomy)
    }

    /// Ids of taxonomies and classes close to a word that is none, the closest first.
    pub fn similar_taxonomies(&self, word: &str) -> Vec<&str> {
        mistake::nearest_of(word, self.taxonomy_ids(), 3)
    }

    /// Ids and aliases of classes close to a word that is none, the closest first.
    pub fn similar_classes(&self, word: &str) -> Vec<&str> {
        let known = self.parts.classes.keys().chain(self.parts.aliases.keys());
        mistake::nearest_of(word, known.map(ClassId::as_str), 3)
    }

    /// Name of a category of a taxonomy, as its authors print it.
    pub fn category_name(&self, taxonomy: &str, category: &str) -> Option<&str> {
        self.taxonomy(taxonomy)?.name_of(category)
    }

    /// Title and address of a source.
    pub fn source(&self, id: &str) -> Option<&Reference> {
        self.parts.sources.get(id)
    }

    /// Title of a source that recommends something.
    pub fn source_title(&self, id: &str) -> Option<&str> {
        self.source(id).map(|source| source.title.as_str())
    }

    /// What an action id means.
    pub fn action(&self, id: &str) -> Option<&str> {
        self.parts.actions.get(id).map(String::as_str)
    }

    /// XIDs of the GPU driver.
    pub fn xids(&self) -> &CodeTable {
        &self.parts.xids
    }

    /// SXids of the NVSwitch driver.
    pub fn sxids(&self) -> &CodeTable {
        &self.parts.sxids
    }

    /// All signatures, in the order of their files.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }
}

/// FNV-1a over texts and the borders between them. It tells one catalogue from another; it is no seal.
fn digest<'t>(texts: impl Iterator<Item = &'t str>) -> u64 {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    for text in texts {
        for byte in text.bytes().chain([0xff]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    state
}
