//! Catalogue of failure classes, taxonomies, codes and signatures, from the built-in files and from user files.
//!
//! Classes, codes and signatures are parsed when the catalogue is built; taxonomies, and the categories beyond the
//! five primary ones, on first use. The built-in files are fully checked by this crate's tests ([`Catalogue::load`]),
//! user files whenever they are read ([`Catalogue::with_files`]).
//!
//! A catalogue is immutable. To reload, build a new one and compare [`Catalogue::version`]; if it differs, build a
//! new matcher (`Matcher::new(&catalogue)`) and pass it to the streams. A stream retains its own state.

mod build;
mod builtin;
mod domain;
mod files;
mod read;
mod signatures;
mod studies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use rankguard_model::{ClassId, LookupMap, RecommendedMitigation, SharedValue};

use crate::class::FailureClass;
use crate::classes;
use crate::code::CodeTable;
use crate::mistake::{self, CatalogueError, CatalogueMistake};
use crate::signature::Signature;
use crate::taxonomy::Taxonomy;

use build::CatalogueParts;
use builtin::{CROSSWALK, SIGNATURES, TAXONOMIES, WORDS};
use read::{CatalogueEntries, CategoryMap};
use studies::LazyTaxonomy;

pub use builtin::PRIMARY;
pub use files::{CatalogueFile, CatalogueFilesError};
pub use read::SourceReference;
pub(crate) use signatures::SIGNATURE_LIMIT;

/// Immutable set of all classes, taxonomies, codes and signatures.
#[derive(Debug, Clone)]
pub struct Catalogue {
    parts: CatalogueParts,
    /// Classes by id and alias; diagnosis looks up the classes of all evidence here.
    named: LookupMap<ClassId, Arc<FailureClass>>,
    signatures: Vec<Signature>,
    shelf: Vec<LazyTaxonomy>,
    /// Categories in non-primary taxonomies from user files.
    added: BTreeMap<ClassId, CategoryMap>,
    /// Built-in categories in non-primary taxonomies.
    crosswalk: OnceLock<BTreeMap<String, CategoryMap>>,
    /// Digest of the user files.
    added_digest: u64,
}

/// Level of checking when a catalogue is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckLevel {
    /// Built-in files are trusted, because the tests checked them.
    Trust,
    /// Every file is fully parsed and checked.
    Full,
}

impl Catalogue {
    /// Returns the built-in catalogue, built on first use.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Catalogue> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            Self::make(&[], CheckLevel::Trust).expect("the built-in catalogue is checked by this crate's tests")
        })
    }

    /// Reads and checks all built-in files at once. Slow; for tests.
    pub fn load() -> Result<Self, CatalogueError> {
        Self::make(&[], CheckLevel::Full)
    }

    /// Builds the built-in catalogue joined with user files. `files` are pairs of a name, repeated in mistakes, and
    /// the text.
    ///
    /// A file holds `[[class]]`, `[[signature]]`, `[[xid]]`, `[[sxid]]`, `[[source]]`, `[[action]]`, `[[taxonomy]]`
    /// and `[map.CLASS]` as the built-in files do, or is one taxonomy (`schema = "failure-taxonomy/1"`) with
    /// categories that name their `classes`. An entry with the id of an existing one needs `replaces = "ID"`. All
    /// mistakes are returned at once.
    pub fn with_files(files: &[(&str, &str)]) -> Result<Self, CatalogueError> {
        Self::make(files, CheckLevel::Trust)
    }

    fn make(files: &[(&str, &str)], care: CheckLevel) -> Result<Self, CatalogueError> {
        let mut entries = CatalogueEntries::default();
        let mut mistakes = Vec::new();
        let exact = care == CheckLevel::Full;
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
        let file_of = |mistake: &CatalogueMistake| files.iter().position(|(file, _)| *file == mistake.file);
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

    /// Returns the digest of the catalogue as 16 hexadecimal digits: equal for equal file texts, independent of file
    /// names.
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

    /// Returns a number that distinguishes catalogues of one program: equal for equal files; unlike `version`,
    /// without allocation.
    pub fn edition(&self) -> u64 {
        self.added_digest
    }

    /// Returns a class by id or alias. An `unknown-*` id that is not in the catalogue resolves to the class of its
    /// family, so that an unknown number still has advice (RG-10).
    pub fn class(&self, id: &ClassId) -> Option<&FailureClass> {
        if let Some(class) = self.named.get(id) {
            return Some(class);
        }
        let family = [classes::UNKNOWN_XID, classes::UNKNOWN_SXID, classes::UNKNOWN]
            .into_iter()
            .find(|family| {
                let rest = id.as_str().strip_prefix(family);
                rest.is_some_and(|rest| rest.starts_with('-'))
            })?;
        self.parts.classes.get(&ClassId::from(family)).map(Arc::as_ref)
    }

    /// Returns all classes, ordered by id.
    pub fn classes(&self) -> impl Iterator<Item = &FailureClass> {
        self.parts.classes.values().map(Arc::as_ref)
    }

    /// Returns the ancestors of a class, nearest first.
    pub fn ancestors(&self, id: &ClassId) -> impl Iterator<Item = &FailureClass> {
        let parent = |class: &&FailureClass| class.parent.as_ref().and_then(|parent| self.class(parent));
        std::iter::successors(self.class(id).and_then(|class| parent(&class)), parent)
    }

    /// Returns the root of the tree that the class belongs to; a root class returns itself.
    pub fn root_of(&self, id: &ClassId) -> Option<&FailureClass> {
        self.ancestors(id).last().or_else(|| self.class(id))
    }

    /// Returns the id that labelled logs use for the class: its own, or its `told_as`.
    pub fn label_class<'c>(&'c self, id: &'c ClassId) -> &'c ClassId {
        self.class(id)
            .map_or(id, |class| class.told_as.as_ref().unwrap_or(&class.id))
    }

    /// Returns the direct children of a class.
    pub fn children(&self, id: &ClassId) -> impl Iterator<Item = &FailureClass> {
        let id = self.class(id).map(|class| &class.id);
        self.classes()
            .filter(move |class| id.is_some() && class.parent.as_ref() == id)
    }

    /// Returns the categories of a class in the five primary taxonomies and in those of user files, most specific
    /// first. A known class has an entry for each primary taxonomy; an unknown class returns an empty map.
    pub fn taxonomies_of(&self, id: &ClassId) -> SharedValue<BTreeMap<String, Vec<String>>> {
        let Some(class) = self.class(id) else {
            return SharedValue::default();
        };
        if self.added.is_empty() {
            return class.taxonomies.clone();
        }
        let mut all: BTreeMap<String, Vec<String>> = (*class.taxonomies).clone();
        let added: BTreeSet<&String> = self.added.values().flat_map(BTreeMap::keys).collect();
        for taxonomy in added {
            if let Some(places) = self.places_in(id, taxonomy) {
                all.entry(taxonomy.clone()).or_insert_with(|| places.clone());
            }
        }
        all.into()
    }

    /// Returns the categories of a class in one taxonomy, its own or those of the nearest ancestor that has any.
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

    /// Returns the mitigation of a class; an id that is not in the catalogue returns that of `unknown`.
    pub fn mitigation(&self, id: &ClassId) -> SharedValue<RecommendedMitigation> {
        let class = self.class(id).or_else(|| self.class(&ClassId::from(classes::UNKNOWN)));
        class.map(|class| class.mitigation.clone()).unwrap_or_default()
    }

    /// Returns all taxonomies, the five primary ones first.
    pub fn taxonomies(&self) -> impl Iterator<Item = &Taxonomy> {
        self.shelf.iter().map(LazyTaxonomy::taxonomy)
    }

    /// Returns the ids of all taxonomies, the five primary ones first, without parsing any.
    pub fn taxonomy_ids(&self) -> impl Iterator<Item = &str> {
        self.shelf.iter().map(|volume| volume.id.as_str())
    }

    /// Returns a taxonomy by id.
    pub fn taxonomy(&self, id: &str) -> Option<&Taxonomy> {
        let volume = self.shelf.iter().find(|volume| volume.id == id);
        volume.map(LazyTaxonomy::taxonomy)
    }

    /// Returns up to three taxonomy ids similar to an unknown word, the closest first.
    pub fn similar_taxonomies(&self, word: &str) -> Vec<&str> {
        mistake::nearest_of(word, self.taxonomy_ids(), 3)
    }

    /// Returns up to three class ids or aliases similar to an unknown word, the closest first.
    pub fn similar_classes(&self, word: &str) -> Vec<&str> {
        let known = self.parts.classes.keys().chain(self.parts.aliases.keys());
        // A line without a failure has a class, which no one looks for.
        let known = known.filter(|class| class.as_str() != classes::NONE);
        mistake::nearest_of(word, known.map(ClassId::as_str), 3)
    }

    /// Returns the name of a category as its authors print it.
    pub fn category_name(&self, taxonomy: &str, category: &str) -> Option<&str> {
        self.taxonomy(taxonomy)?.name_of(category)
    }

    /// Returns title and address of a source.
    pub fn source(&self, id: &str) -> Option<&SourceReference> {
        self.parts.sources.get(id)
    }

    /// Returns the title of a source.
    pub fn source_title(&self, id: &str) -> Option<&str> {
        self.source(id).map(|source| source.title.as_str())
    }

    /// Returns the definition of an action id.
    pub fn action(&self, id: &str) -> Option<&str> {
        self.parts.actions.get(id).map(String::as_str)
    }

    /// Returns the XIDs of the GPU driver.
    pub fn xids(&self) -> &CodeTable {
        &self.parts.xids
    }

    /// Returns the SXids of the NVSwitch driver.
    pub fn sxids(&self) -> &CodeTable {
        &self.parts.sxids
    }

    /// Returns all signatures, in file order.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }
}

/// Computes FNV-1a over the texts, each followed by a separator byte. Distinguishes catalogues; not cryptographic.
fn digest<'t>(texts: impl Iterator<Item = &'t str>) -> u64 {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    for text in texts {
        for byte in text.bytes().chain([0xff]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    state
}
