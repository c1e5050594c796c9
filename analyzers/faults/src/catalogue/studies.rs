//! Taxonomies, parsed on first use, and the categories of classes in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use rankguard_model::ClassId;

use super::builtin::{CROSSWALK, PRIMARY, TAXONOMIES};
use super::read::{CatalogueEntries, CatalogueEntry, CategoryMap, LocatedTaxonomy, read};
use crate::class::ClassRow;
use crate::mistake::{CatalogueMistake, EntryPosition, nearest};
use crate::taxonomy::{Taxonomy, TaxonomyCategory, check};

/// Taxonomy that is parsed on first use.
#[derive(Debug, Clone)]
pub(super) struct LazyTaxonomy {
    pub(super) id: String,
    /// File name and text, if it is not parsed yet.
    unread: Option<(&'static str, &'static str)>,
    taxonomy: OnceLock<Taxonomy>,
}

impl LazyTaxonomy {
    pub(super) fn taxonomy(&self) -> &Taxonomy {
        self.taxonomy.get_or_init(|| {
            let (file, text) = self.unread.unwrap_or_default();
            let mut entries = CatalogueEntries::default();
            let mut mistakes = Vec::new();
            read(file, text, false, &mut entries, &mut mistakes);
            let study = entries.taxonomies.pop();
            study
                .expect("the built-in taxonomies are read by this crate's tests")
                .value
                .taxonomy
        })
    }
}

/// Returns the built-in taxonomies, none of them parsed.
pub(super) fn builtin() -> Vec<LazyTaxonomy> {
    let volume = |&(id, file, text): &(&str, &'static str, &'static str)| LazyTaxonomy {
        id: id.to_owned(),
        unread: Some((file, text)),
        taxonomy: OnceLock::new(),
    };
    TAXONOMIES.iter().map(volume).collect()
}

/// Returns the built-in categories in non-primary taxonomies, by class id.
pub(super) fn crosswalk() -> BTreeMap<String, CategoryMap> {
    let (file, text) = CROSSWALK;
    let mut entries = CatalogueEntries::default();
    read(file, text, false, &mut entries, &mut Vec::new());
    entries.maps.into_iter().map(|entry| entry.value).collect()
}

/// Checks each taxonomy and adds it to the list, or replaces the one with its id.
pub(super) fn shelve(
    studies: Vec<CatalogueEntry<LocatedTaxonomy>>,
    shelf: &mut Vec<LazyTaxonomy>,
    mistakes: &mut Vec<CatalogueMistake>,
) {
    let mut seen: BTreeMap<String, EntryPosition> = BTreeMap::new();
    for entry in studies {
        let id = entry.value.taxonomy.id.clone();
        let mut tell = |place: &EntryPosition, key: &str, what: String, help: String| {
            mistakes.push(place.mistake(key, what, help));
        };
        check(&entry.value.taxonomy, &entry.value.lists, &mut tell);
        let at = shelf.iter().position(|volume| volume.id == id);
        match (&entry.replaces, at) {
            (Some(replaced), Some(_)) if *replaced == id => {}
            (None, None) => {}
            (Some(replaced), _) => {
                let what = format!("taxonomy {id} cannot replace {replaced:?}");
                let help = "a taxonomy replaces a known one with its own id".to_owned();
                tell(&entry.place, "replaces", what, help);
            }
            (None, Some(_)) => {
                let there = seen
                    .get(&id)
                    .map_or_else(|| "is built in".to_owned(), |at| format!("stands at {}", at.pointer()));
                let what = format!("taxonomy {id} {there} already");
                tell(
                    &entry.place,
                    "id",
                    what,
                    format!("choose another id, or write replaces = {id:?}"),
                );
            }
        }
        seen.insert(id.clone(), entry.place);
        let volume = LazyTaxonomy {
            id,
            unread: None,
            taxonomy: OnceLock::from(entry.value.taxonomy),
        };
        match at {
            Some(at) => shelf[at] = volume,
            None => shelf.push(volume),
        }
    }
}

/// Adds to the classes the categories that `map` tables and the `classes` keys of categories assign to them.
pub(super) fn place_classes(
    entries: &mut CatalogueEntries,
    studies: &[CatalogueEntry<LocatedTaxonomy>],
    shelf: &[LazyTaxonomy],
    mistakes: &mut Vec<CatalogueMistake>,
) {
    for entry in &entries.classes {
        check_map(&entry.value.map, &entry.place, "map", shelf, mistakes);
    }
    let mut given: Vec<(String, String, Vec<String>, EntryPosition, &str)> = Vec::new();
    for CatalogueEntry { value, place, .. } in std::mem::take(&mut entries.maps) {
        let (class, map) = value;
        check_map(&map, &place, "", shelf, mistakes);
        given.extend(
            map.into_iter()
                .map(|(taxonomy, places)| (class.clone(), taxonomy, places, place.clone(), "map")),
        );
    }
    for study in studies {
        let taxonomy = &study.value.taxonomy;
        let mut of_class: BTreeMap<&str, (Vec<String>, &EntryPosition)> = BTreeMap::new();
        for (category, place) in taxonomy.categories.iter().zip(&study.value.lists.categories) {
            for class in &category.classes {
                of_class
                    .entry(class)
                    .or_insert_with(|| (Vec::new(), place))
                    .0
                    .push(category.id.clone());
            }
        }
        for (class, (places, place)) in of_class {
            given.push((class.to_owned(), taxonomy.id.clone(), places, place.clone(), "classes"));
        }
    }
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    for (index, entry) in entries.classes.iter().enumerate() {
        let aliases = entry.value.aliases.iter().map(ToString::to_string);
        for id in aliases.chain([entry.value.id.to_string()]) {
            at.insert(id, index);
        }
    }
    for (class, taxonomy, places, place, key) in given {
        match at.get(&class) {
            Some(&index) => {
                entries.classes[index].value.map.insert(taxonomy, places);
            }
            None => {
                let help = nearest(&class, at.keys().map(String::as_str));
                let help = help.unwrap_or_else(|| "name a known class, or add a [[class]]".to_owned());
                mistakes.push(place.mistake(key, format!("no class {class}"), help));
            }
        }
    }
}

fn check_map(
    map: &CategoryMap,
    place: &EntryPosition,
    key: &str,
    shelf: &[LazyTaxonomy],
    mistakes: &mut Vec<CatalogueMistake>,
) {
    if !place.is_exact() {
        return;
    }
    for (taxonomy, categories) in map {
        let key = if key.is_empty() { taxonomy.as_str() } else { key };
        let Some(volume) = shelf.iter().find(|volume| volume.id == *taxonomy) else {
            let help = nearest(taxonomy, shelf.iter().map(|volume| volume.id.as_str()));
            let help = help.unwrap_or_else(|| "`rankguard taxonomy ls` lists them; a file may add one".to_owned());
            mistakes.push(place.mistake(key, format!("no taxonomy {taxonomy:?}"), help));
            continue;
        };
        let known = volume.taxonomy();
        for category in categories.iter().filter(|category| known.name_of(category).is_none()) {
            let help = nearest(category, known.categories.iter().map(|c| c.id.as_str()));
            let help = help.unwrap_or_else(|| format!("`rankguard taxonomy show {taxonomy}` lists them"));
            mistakes.push(place.mistake(key, format!("{taxonomy} has no category {category:?}"), help));
        }
    }
}

/// Returns the categories in non-primary taxonomies that the classes name themselves.
pub(super) fn further(rows: &[CatalogueEntry<ClassRow>]) -> BTreeMap<ClassId, CategoryMap> {
    let mut all = BTreeMap::new();
    for entry in rows {
        let row = &entry.value;
        let own = row
            .map
            .iter()
            .filter(|(taxonomy, _)| !PRIMARY.contains(&taxonomy.as_str()));
        let own: CategoryMap = own
            .map(|(taxonomy, places)| (taxonomy.clone(), places.clone()))
            .collect();
        if !own.is_empty() {
            all.insert(row.id.clone(), own);
        }
    }
    all
}

/// Returns the categories that no class maps to and that are not declared unreachable.
pub(super) fn unreached<'t>(taxonomy: &'t Taxonomy, reached: &BTreeSet<String>) -> Vec<&'t TaxonomyCategory> {
    let categories = taxonomy.categories.iter();
    categories
        .filter(|category| !reached.contains(&category.id) && taxonomy.unreachable(category).is_none())
        .collect()
}
