//! Lookup of settings by user input.

use std::collections::BTreeMap;

use super::key::SettingKey;
use super::keys::KEYS;

/// Returns the setting with this path.
pub(crate) fn find(path: &str) -> Option<&'static SettingKey> {
    KEYS.iter().find(|key| key.path == path)
}

/// True if the path is a section of settings.
pub(crate) fn is_section(path: &str) -> bool {
    KEYS.iter()
        .any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// Returns the known word nearest to a mistyped one, within an edit distance of 1 plus a third of its length.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let leaf = |path: &'a str| path.rsplit('.').next().unwrap_or(path);
    let typed_leaf = typed.rsplit('.').next().unwrap_or(typed);
    known
        .into_iter()
        .map(|word| {
            let whole = strsim::damerau_levenshtein(typed, word);
            // The right name in the wrong section is near, too.
            let elsewhere = strsim::damerau_levenshtein(typed_leaf, leaf(word)) + 1;
            (whole.min(elsewhere), word)
        })
        .filter(|(distance, _)| *distance <= 1 + typed_leaf.len() / 3)
        .min()
        .map(|(_, word)| word)
}

/// Returns the variable nearest to a mistyped one. A setting with a short variable is also found by the name of its
/// path (`RANKGUARD_CLIENT_CONTROLLER` is `RANKGUARD_CONTROLLER`).
pub(crate) fn nearest_variable(typed: &str) -> Option<String> {
    let by_path = |key: &SettingKey| format!("RANKGUARD_{}", key.path.replace('.', "_").to_uppercase());
    let known: BTreeMap<String, &SettingKey> = KEYS
        .iter()
        .flat_map(|key| [(key.env(), key), (by_path(key), key)])
        .collect();
    let near = nearest(typed, known.keys().map(String::as_str))?;
    known.get(near).map(|key| key.env())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_the_meant_one() {
        let known = || KEYS.iter().map(|key| key.path);
        assert_eq!(nearest("agent.slotz", known()), Some("agent.slots"));
        assert_eq!(nearest("agent.lissten", known()), Some("controller.listen"));
        assert_eq!(nearest("agent.banana", known()), None);
    }

    #[test]
    fn the_address_of_the_controller_is_found_by_its_path() {
        let expect = Some("RANKGUARD_CONTROLLER");
        assert_eq!(nearest_variable("RANKGUARD_CLIENT_CONTROLLER").as_deref(), expect);
        assert_eq!(nearest_variable("RANKGUARD_CLIENT_CONTROLER").as_deref(), expect);
        let slots = nearest_variable("RANKGUARD_AGENT_SLOT");
        assert_eq!(slots.as_deref(), Some("RANKGUARD_AGENT_SLOTS"));
    }
}
