//! Builds a catalogue from entries: applies replacements, inherits unset class fields from parents, and resolves
//! every reference.

use std::collections::BTreeMap;
use std::sync::Arc;

use rankguard_model::{ClassId, LookupMap, RecommendedMitigation, Role, Severity};

use super::builtin::PRIMARY;
use super::domain::domain_of;
use super::read::{ActionDefinition, CatalogueEntries, CatalogueEntry, CategoryMap, SourceReference};
use crate::class::{ClassRow, FailureClass};
use crate::code::{CodeTable, DriverCode};
use crate::mistake::{CatalogueMistake, EntryPosition, nearest};

/// Maximum number of ancestors of a class; a longer chain is reported as a cycle.
const DEPTH: usize = 8;

/// Catalogue parts after entries were resolved, each keyed by id.
#[derive(Debug, Clone, Default)]
pub(super) struct CatalogueParts {
    pub(super) classes: BTreeMap<ClassId, Arc<FailureClass>>,
    pub(super) aliases: BTreeMap<ClassId, ClassId>,
    pub(super) xids: CodeTable,
    pub(super) sxids: CodeTable,
    pub(super) sources: BTreeMap<String, SourceReference>,
    pub(super) actions: BTreeMap<String, String>,
}

/// Returns one entry for each id. A repeated id must set `replaces` to that id; a first one must not set it.
pub(super) fn settle<T>(
    entries: Vec<CatalogueEntry<T>>,
    kind: &str,
    id_of: impl Fn(&T) -> String,
    mistakes: &mut Vec<CatalogueMistake>,
) -> Vec<CatalogueEntry<T>> {
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept: Vec<CatalogueEntry<T>> = Vec::with_capacity(entries.len());
    for entry in entries {
        let id = id_of(&entry.value);
        match (&entry.replaces, at.get(&id).copied()) {
            (Some(replaced), _) if *replaced != id => {
                let what = format!("{kind} {id} cannot replace {replaced:?}");
                let help = "an entry replaces the one with its own id".to_owned();
                mistakes.push(entry.place.mistake("replaces", what, help));
            }
            (Some(_), None) => {
                let what = format!("there is no {kind} {id} to replace");
                let known = at.keys().map(String::as_str);
                let help = nearest(&id, known).unwrap_or_else(|| "remove replaces".to_owned());
                mistakes.push(entry.place.mistake("replaces", what, help));
            }
            (Some(_), Some(index)) => kept[index] = entry,
            (None, Some(index)) => {
                let what = format!("{kind} {id} stands at {} already", kept[index].place.pointer());
                let help = format!("choose another id, or write replaces = {id:?}");
                let key = if matches!(kind, "xid" | "sxid") { "number" } else { "id" };
                mistakes.push(entry.place.mistake(key, what, help));
            }
            (None, None) => {
                at.insert(id, kept.len());
                kept.push(entry);
            }
        }
    }
    kept
}

/// Builds everything except signatures and taxonomies.
pub(super) fn build(entries: &mut CatalogueEntries, mistakes: &mut Vec<CatalogueMistake>) -> CatalogueParts {
    let mut parts = CatalogueParts::default();
    let sources = settle(
        std::mem::take(&mut entries.sources),
        "source",
        |s| s.id.clone(),
        mistakes,
    );
    parts.sources = sources.into_iter().map(|s| (s.value.id.clone(), s.value)).collect();
    let actions: Vec<CatalogueEntry<ActionDefinition>> = settle(
        std::mem::take(&mut entries.actions),
        "action",
        |a| a.id.clone(),
        mistakes,
    );
    parts.actions = actions.into_iter().map(|a| (a.value.id, a.value.definition)).collect();

    let rows = settle(
        std::mem::take(&mut entries.classes),
        "class",
        |c| c.id.to_string(),
        mistakes,
    );
    let rows: BTreeMap<ClassId, CatalogueEntry<ClassRow>> =
        rows.into_iter().map(|row| (row.value.id.clone(), row)).collect();
    for (id, row) in &rows {
        for alias in &row.value.aliases {
            if rows.contains_key(alias) {
                let what = format!("{alias} is a class of its own");
                let help = "an alias must be an id that nothing has".to_owned();
                mistakes.push(row.place.mistake("aliases", what, help));
            } else if let Some(other) = parts.aliases.insert(alias.clone(), id.clone()) {
                let what = format!("{alias} is an alias of {other} already");
                mistakes.push(row.place.mistake("aliases", what, "leave it to one of them".to_owned()));
            }
        }
    }
    for (id, row) in &rows {
        let lineage = lineage(row, &rows, &parts.aliases, mistakes);
        let class = join(&lineage, &parts, &entries.clears, mistakes);
        parts.classes.insert(id.clone(), Arc::new(class));
    }
    for (kind, list) in [("xid", &mut entries.xids), ("sxid", &mut entries.sxids)] {
        let table = codes(std::mem::take(list), kind, &parts, mistakes);
        match kind {
            "xid" => parts.xids = table,
            _ => parts.sxids = table,
        }
    }
    parts
}

/// Returns the class row followed by its ancestors, nearest first.
fn lineage<'r>(
    row: &'r CatalogueEntry<ClassRow>,
    rows: &'r BTreeMap<ClassId, CatalogueEntry<ClassRow>>,
    aliases: &BTreeMap<ClassId, ClassId>,
    mistakes: &mut Vec<CatalogueMistake>,
) -> Vec<&'r CatalogueEntry<ClassRow>> {
    let mut line = vec![row];
    let mut at = row;
    while let Some(parent) = &at.value.parent {
        let Some(next) = rows.get(aliases.get(parent).unwrap_or(parent)) else {
            // Reported once, at the class that names the parent, and not at each of its descendants.
            if line.len() == 1 {
                let help = nearest(parent.as_str(), rows.keys().map(ClassId::as_str));
                let help = help.unwrap_or_else(|| "name a class, or leave parent out".to_owned());
                mistakes.push(at.place.mistake("parent", format!("no class {parent}"), help));
            }
            break;
        };
        if line.len() > DEPTH {
            let what = format!("{} is not below any root", row.value.id);
            let help = format!("parents form a circle, or more than {DEPTH} levels");
            mistakes.push(row.place.mistake("parent", what, help));
            break;
        }
        line.push(next);
        at = next;
    }
    line
}

/// Returns the first value that is set on the path from the class to its root.
fn inherited_value<'r, T>(
    lineage: &[&'r CatalogueEntry<ClassRow>],
    of: impl Fn(&'r ClassRow) -> Option<T>,
) -> Option<T> {
    lineage.iter().find_map(|entry| of(&entry.value))
}

fn join(
    lineage: &[&CatalogueEntry<ClassRow>],
    parts: &CatalogueParts,
    clears: &BTreeMap<String, String>,
    mistakes: &mut Vec<CatalogueMistake>,
) -> FailureClass {
    let entry = lineage[0];
    let row = &entry.value;
    // The action and its sources, basis and alternatives come from the same class, because a source recommends the
    // action of its own entry.
    let acts = lineage
        .iter()
        .find(|entry| entry.value.action.is_some())
        .map(|entry| &entry.value);
    let action = acts.and_then(|row| row.action.clone());
    if action.is_none() {
        let what = format!("{} has no action, nor has a wider class", row.id);
        mistakes.push(
            entry
                .place
                .mistake("action", what, "add action = ID of an action".to_owned()),
        );
    }
    let recommended_by = row
        .recommended_by
        .clone()
        .or_else(|| acts.and_then(|row| row.recommended_by.clone()));
    let row_clears = row.clears.clone().or_else(|| clears.get(&row.layer).cloned());
    if row_clears.is_none() {
        let help = nearest(&row.layer, clears.keys().map(String::as_str));
        let help = help.unwrap_or_else(|| format!("known are {}", words(clears.keys())));
        mistakes.push(entry.place.mistake("layer", format!("no layer {:?}", row.layer), help));
    }
    let mut taxonomies = CategoryMap::new();
    for taxonomy in PRIMARY {
        let places = inherited_value(lineage, |row| row.map.get(taxonomy).cloned());
        let places = places.unwrap_or_else(|| vec![domain_of(taxonomy, &row.layer).to_owned()]);
        taxonomies.insert(taxonomy.to_owned(), places);
    }
    let class = FailureClass {
        id: row.id.clone(),
        aliases: row.aliases.clone(),
        parent: lineage.get(1).map(|parent| parent.value.id.clone()),
        told_as: row.told_as.clone(),
        surface: row.surface,
        layer: row.layer.clone(),
        kind: inherited_value(lineage, |row| row.kind).unwrap_or_default(),
        definition: row.definition.clone(),
        causes: row.causes.clone(),
        role: row.role.unwrap_or(Role::Root),
        severity: row.severity.unwrap_or(Severity::Failure),
        mitigation: RecommendedMitigation {
            action: action.unwrap_or_default(),
            advice: row.advice.clone(),
            advice_on_return: row.advice_on_return.clone(),
            recommended_by: recommended_by.unwrap_or_default(),
        }
        .into(),
        then: acts.map(|row| row.then.clone()).unwrap_or_default(),
        basis: row.basis.or_else(|| acts.and_then(|row| row.basis)).unwrap_or_default(),
        alternatives: acts.map(|row| row.alternatives.clone()).unwrap_or_default(),
        notes: row.notes.clone(),
        clears: row_clears.unwrap_or_default(),
        sources: row.sources.clone(),
        taxonomies: taxonomies.into(),
    };
    check_class(row, &entry.place, parts, mistakes);
    class
}

/// Checks the ids that a class names itself; inherited ids are reported at the class that names them.
fn check_class(row: &ClassRow, place: &EntryPosition, parts: &CatalogueParts, mistakes: &mut Vec<CatalogueMistake>) {
    let actions = row.action.iter().map(|id| ("action", id));
    let actions = actions.chain(row.then.iter().map(|id| ("then", id)));
    let actions = actions.chain(row.alternatives.iter().map(|other| ("alternatives", &other.action)));
    for (key, id) in actions {
        if !parts.actions.contains_key(id) {
            let help = nearest(id, parts.actions.keys().map(String::as_str));
            let help = help.unwrap_or_else(|| "name a known action, or add an [[action]]".to_owned());
            mistakes.push(place.mistake(key, format!("no action {id:?}"), help));
        }
    }
    let sources = row.recommended_by.iter().flatten().map(|id| ("recommended_by", id));
    let sources = sources.chain(row.sources.iter().map(|id| ("sources", id)));
    let sources = sources.chain(row.alternatives.iter().map(|other| ("alternatives", &other.source)));
    for (key, id) in sources {
        if !parts.sources.contains_key(id) {
            mistakes.push(no_source(place, key, id, parts));
        }
    }
    for (taxonomy, places) in &row.map {
        if places.is_empty() {
            let what = format!("an empty list for {taxonomy}");
            mistakes.push(place.mistake("map", what, "leave the taxonomy out".to_owned()));
        }
    }
}

fn no_source(place: &EntryPosition, key: &str, id: &str, parts: &CatalogueParts) -> CatalogueMistake {
    let help = nearest(id, parts.sources.keys().map(String::as_str));
    let help = help.unwrap_or_else(|| "name a known source, or add a [[source]] with title and url".to_owned());
    place.mistake(key, format!("no source {id:?}"), help)
}

fn codes(
    rows: Vec<CatalogueEntry<DriverCode>>,
    kind: &str,
    parts: &CatalogueParts,
    mistakes: &mut Vec<CatalogueMistake>,
) -> CodeTable {
    let mut each = Vec::new();
    for row in rows {
        let CatalogueEntry { value, place, replaces } = row;
        if value.number == 0 && value.numbers.is_empty() {
            let help = "add number = N, or numbers = [N, ...]".to_owned();
            mistakes.push(place.mistake("number", format!("the {kind} has no number"), help));
        }
        if !value.mnemonics.is_empty() && value.mnemonics.len() != value.numbers.len() {
            let what = format!(
                "{} mnemonics for {} numbers",
                value.mnemonics.len(),
                value.numbers.len()
            );
            mistakes.push(place.mistake("mnemonics", what, "give one for each number".to_owned()));
        }
        each.extend(value.each().into_iter().map(|value| CatalogueEntry {
            value,
            place: place.clone(),
            replaces: replaces.clone(),
        }));
    }
    let mut table = CodeTable::default();
    for CatalogueEntry { mut value, place, .. } in settle(each, kind, |code| code.number.to_string(), mistakes) {
        match parts.class_id(&value.class) {
            Some(class) => value.class = class,
            None => mistakes.push(no_class(&place, &value.class, parts)),
        }
        if !(0.0..=1.0).contains(&value.confidence) {
            mistakes.push(beyond(&place, value.confidence));
        }
        if !value.source.is_empty() && !parts.sources.contains_key(value.source.as_str()) {
            mistakes.push(no_source(&place, "source", &value.source, parts));
        }
        table.insert(value);
    }
    table
}

impl CatalogueParts {
    /// Resolves a class id or an alias to the class id.
    pub(super) fn class_id(&self, id: &ClassId) -> Option<ClassId> {
        if self.classes.contains_key(id) {
            return Some(id.clone());
        }
        self.aliases.get(id).cloned()
    }

    /// Returns all classes, keyed by id and by alias.
    pub(super) fn named(&self) -> LookupMap<ClassId, Arc<FailureClass>> {
        let others = self
            .aliases
            .iter()
            .filter_map(|(id, of)| Some((id, self.classes.get(of)?)));
        let mut named = LookupMap::default();
        for (id, class) in others.chain(&self.classes) {
            named.set(id.clone(), Arc::clone(class));
        }
        named
    }
}

pub(super) fn no_class(place: &EntryPosition, id: &ClassId, parts: &CatalogueParts) -> CatalogueMistake {
    let known = parts.classes.keys().chain(parts.aliases.keys()).map(ClassId::as_str);
    let help = nearest(id.as_str(), known).unwrap_or_else(|| "name a known class, or add a [[class]]".to_owned());
    place.mistake("class", format!("no class {id}"), help)
}

pub(super) fn beyond(place: &EntryPosition, confidence: f64) -> CatalogueMistake {
    let what = format!("{confidence} is beyond 0 to 1");
    place.mistake("confidence", what, "1 is certain, 0.5 a generic message".to_owned())
}

fn words<'a>(words: impl Iterator<Item = &'a String>) -> String {
    words.map(String::as_str).collect::<Vec<_>>().join(", ")
}
