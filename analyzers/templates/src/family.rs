//! Families of templates that differ only in values without the form of a value: user names, hosts, devices.
//!
//! Masks recognise values by form. `session closed for user alice` and `... user bob` require both lines. This second
//! stage works on a finished set of templates and depends on that set only, never on its order; it runs on one profile
//! or on the union of several. Templates that it joins form a **family**, named after its joint text; the names of its
//! members remain valid as aliases. The joint text is the same for any two or more values at a position.
//!
//! Within templates of one length:
//!
//! 1. Tokens that contain a value by structure (`key=host.name`, `[name]`, `user@host`, `a.b.c`) are opened; templates
//!    that are equal except for the opened parts are joined if there are [`BUILT`] of them or one has a mask there
//!    already.
//! 2. Templates that are equal except for one token are joined if there are [`PLAIN`] of them, or two of which one has
//!    a mask there; [`KEYED`] if they are `key=word`; [`SHORT`] if fewer than two other words hold them together;
//!    [`FIRST`] if it is the first token. This is repeated, at most [`ROUNDS`] times, until nothing changes.
//!
//! Never values: words that announce trouble, levels, words in `-ed` and `-ing` (`started`, `stopping`: the event, not
//! its object), tokens with half a pair of quotes or brackets; unless they are at most one in [`RARE`] of the words at
//! this position, because users may be called `zhang` or `manfred`.

use std::collections::{BTreeMap, BTreeSet};

use crate::alarm::{alarming, level};
use crate::id::TemplateId;
use crate::mask::MASK;
use crate::tree::{MANY, MANY_ALARMING};

const BUILT: usize = 3;
const PLAIN: usize = 3;
const KEYED: usize = 4;
const SHORT: usize = 8;
const FIRST: usize = 12;
const ROUNDS: usize = 4;
const RARE: usize = 10;

/// Family of templates with equal meaning for different objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFamily {
    /// Joint text of all members.
    pub text: String,
    /// Indexes of the members in the given list, ascending.
    pub members: Vec<usize>,
}

impl TemplateFamily {
    /// Returns the id of the joint text, or of the only member.
    pub fn id(&self) -> TemplateId {
        TemplateId::of(&self.text)
    }
}

/// Returns the families of these template texts, sorted by joint text. Each template is in one family.
///
/// The cost grows with texts times tokens times a few rounds: milliseconds for the hundreds of templates of a run,
/// seconds for 8,192 of 60 tokens each.
pub fn families(texts: &[&str]) -> Vec<TemplateFamily> {
    let mut lengths: BTreeMap<usize, TokenGroups> = BTreeMap::new();
    for (member, text) in texts.iter().enumerate() {
        let tokens: Vec<&str> = text.split(' ').collect();
        lengths
            .entry(tokens.len())
            .or_default()
            .entry(tokens)
            .or_default()
            .push(member);
    }
    let mut found = Vec::new();
    for groups in lengths.into_values() {
        let groups = join_built(groups);
        let groups = join_plain(
            groups
                .iter()
                .map(|(tokens, members)| (borrowed(tokens), members.clone()))
                .collect(),
        );
        found.extend(groups.into_iter().map(|(tokens, mut members)| {
            members.sort_unstable();
            TemplateFamily {
                text: tokens.join(" "),
                members,
            }
        }));
    }
    found.sort_by(|a, b| a.text.cmp(&b.text));
    found
}

/// Members by the tokens of their joint text.
type TokenGroups<'a> = BTreeMap<Vec<&'a str>, Vec<usize>>;
/// Tokens and members of one group.
type TokenGroup<'a> = (Vec<&'a str>, Vec<usize>);

fn borrowed(tokens: &[String]) -> Vec<&str> {
    tokens.iter().map(String::as_str).collect()
}

/// Placeholder for the value in an opened token; no token contains a space.
const HOLE: &str = " ";

/// Joins templates in stage 1.
fn join_built(groups: TokenGroups) -> Vec<(Vec<String>, Vec<usize>)> {
    let mut alike: BTreeMap<Vec<String>, Vec<TokenGroup>> = BTreeMap::new();
    for (tokens, members) in groups {
        let key = tokens.iter().enumerate().map(|(at, token)| open(at, token)).collect();
        alike.entry(key).or_default().push((tokens, members));
    }
    let mut joined = Vec::new();
    for (key, group) in alike {
        let masked = |(tokens, _): &TokenGroup| {
            key.iter()
                .zip(tokens)
                .any(|(key, token)| key.contains(HOLE) && *token == key.replace(HOLE, MASK))
        };
        if group.len() < BUILT && (group.len() < 2 || !group.iter().any(masked)) {
            joined.extend(group.into_iter().map(|(tokens, members)| (owned(&tokens), members)));
            continue;
        }
        let differs = |at: usize| group.iter().any(|(tokens, _)| tokens[at] != group[0].0[at]);
        let text = |at: usize| {
            if differs(at) {
                key[at].replace(HOLE, MASK)
            } else {
                group[0].0[at].to_owned()
            }
        };
        let tokens = (0..key.len()).map(text).collect();
        joined.push((tokens, group.into_iter().flat_map(|(_, members)| members).collect()));
    }
    joined
}

fn owned(tokens: &[&str]) -> Vec<String> {
    tokens.iter().map(|token| (*token).to_owned()).collect()
}

/// Replaces a value by structure in the token with a [`HOLE`]; any other token is unchanged.
fn open(at: usize, token: &str) -> String {
    if at == 0 || is_mask(token) || alarming(token) || level(token) {
        return token.to_owned();
    }
    if let Some((key, value)) = token.split_once('=')
        && !key.is_empty()
        && !value.is_empty()
    {
        let core = value.trim_end_matches(['.', ',', ':', ';', ')', ']']);
        let valued = core == MASK || is_dotted(core);
        return if valued {
            format!("{key}={HOLE}{}", &value[core.len()..])
        } else {
            token.to_owned()
        };
    }
    let brackets = ['(', '[', '{', '"', '\''];
    let closing = [')', ']', '}', '"', '\''];
    if let Some(start) = token.find(brackets)
        && let Some(end) = token.rfind(closing)
        && end > start
    {
        return format!("{}{HOLE}{}", &token[..=start], &token[end..]);
    }
    let core = token.trim_end_matches(['.', ',', ':', ';', ')']);
    if is_dotted(core) {
        format!("{HOLE}{}", &token[core.len()..])
    } else {
        token.to_owned()
    }
}

fn is_mask(token: &str) -> bool {
    token == MASK || token == MANY || token == MANY_ALARMING
}

/// Returns true if the text is a name of several parts, or an address with `@`.
fn is_dotted(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |window: &[u8]| {
        window[1] == b'.'
            && (window[0].is_ascii_alphanumeric() || window[0] == b'>')
            && (window[2].is_ascii_alphanumeric() || window[2] == b'<')
    };
    text.contains('@') || bytes.windows(3).any(inner)
}

/// Returns true if a token describes the event and is never a value.
fn is_fixed(token: &str) -> bool {
    let core = token.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let ending = |end: &str| {
        core.len() > 4
            && core.is_char_boundary(core.len() - end.len())
            && core[core.len() - end.len()..].eq_ignore_ascii_case(end)
    };
    let count = |c: char| token.matches(c).count();
    alarming(token)
        || level(token)
        || ending("ed")
        || ending("ing")
        || count('"') % 2 == 1
        || count('\'') % 2 == 1
        || count('(') != count(')')
        || count('[') != count(']')
}

/// Joins templates in stage 2.
fn join_plain(mut groups: TokenGroups) -> TokenGroups {
    let length = groups.keys().next().map_or(0, Vec::len);
    for _ in 0..ROUNDS {
        let before = groups.len();
        for at in 0..length {
            groups = join_at(groups, at);
        }
        if groups.len() == before {
            break;
        }
    }
    groups
}

/// Joins templates that are equal except for the token at `at`.
fn join_at(groups: TokenGroups, at: usize) -> TokenGroups {
    let mut alike: BTreeMap<Vec<&str>, Vec<(&str, Vec<usize>)>> = BTreeMap::new();
    for (mut tokens, members) in groups {
        let token = std::mem::replace(&mut tokens[at], HOLE);
        alike.entry(tokens).or_default().push((token, members));
    }
    let mut joined = TokenGroups::new();
    for (mut key, group) in alike {
        if group.len() >= needed(&key, at, &group) {
            key[at] = MASK;
            joined.insert(key, group.into_iter().flat_map(|(_, members)| members).collect());
            continue;
        }
        for (token, members) in group {
            key[at] = token;
            joined.insert(key.clone(), members);
        }
    }
    joined
}

/// Returns the number of templates, different in one token only, from which that token counts as a value.
fn needed(key: &[&str], at: usize, group: &[(&str, Vec<usize>)]) -> usize {
    let fixed = group
        .iter()
        .filter(|(token, _)| !is_mask(token) && is_fixed(token))
        .count();
    if group.len() < 2 || fixed * RARE > group.len() {
        return usize::MAX;
    }
    let keys: BTreeSet<Option<&str>> = group
        .iter()
        .map(|(token, _)| token.split_once('=').map(|(key, _)| key))
        .collect();
    let mut needed = match (keys.len(), keys.first()) {
        (1, Some(None)) => PLAIN,
        (1, Some(Some(_))) => KEYED,
        _ => return usize::MAX,
    };
    if group.iter().any(|(token, _)| is_mask(token)) {
        needed = 2;
    }
    let words = key
        .iter()
        .filter(|token| token.bytes().any(|b| b.is_ascii_alphabetic()))
        .count();
    match words {
        0 => return usize::MAX,
        1 => needed = needed.max(SHORT),
        _ => {}
    }
    if at == 0 { needed.max(FIRST) } else { needed }
}

#[cfg(test)]
mod tests {
    use super::families;

    fn check(texts: &[&str], expect: &[&str]) {
        for rotation in 0..texts.len() {
            let turned: Vec<&str> = texts.iter().cycle().skip(rotation).take(texts.len()).copied().collect();
            let found = families(&turned);
            let texts_found: Vec<&str> = found.iter().map(|family| family.text.as_str()).collect();
            assert_eq!(texts_found, expect);
            assert_eq!(
                found.iter().map(|family| family.members.len()).sum::<usize>(),
                texts.len()
            );
        }
    }

    #[test]
    fn three_users_are_a_value_two_are_not() {
        let [a, b, c] = [
            "session closed for user ann",
            "session closed for user bob",
            "session closed for user cyd",
        ];
        check(&[a, b], &[a, b]);
        check(&[a, b, c], &["session closed for user <*>"]);
        check(&[a, "session closed for user <*>"], &["session closed for user <*>"]);
    }

    #[test]
    fn what_happened_is_no_value() {
        let texts = [
            "link eth<*> has failed",
            "link eth<*> has recovered",
            "link eth<*> has started",
            "link eth<*> has stopped",
        ];
        check(&texts, &texts);
        let levels = ["job <*> DEBUG said no", "job <*> INFO said no", "job <*> WARN said no"];
        check(&levels, &levels);
    }

    #[test]
    fn among_many_names_one_may_look_like_what_happened() {
        let names = ["ann", "bob", "cyd", "dan", "eve", "flo", "gus", "hal", "ida", "manfred"];
        let texts: Vec<String> = names.iter().map(|name| format!("session closed for {name}")).collect();
        let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        check(&texts, &["session closed for <*>"]);
        texts.remove(0);
        assert_eq!(families(&texts).len(), 9);
    }

    #[test]
    fn two_values_that_change_together_are_seen_by_their_build() {
        let texts = [
            "Registering a.B for c.D here",
            "Registering e.F for g.H here",
            "Registering i.J for k.L here",
        ];
        check(&texts, &["Registering <*> for <*> here"]);
    }

    #[test]
    fn keys_stay_and_different_keys_stay_apart() {
        let texts = [
            "login ok user=a now",
            "login ok user=b now",
            "login ok user=c now",
            "login ok user=d now",
        ];
        check(&texts, &["login ok <*> now"]);
        let states = [
            "port is state=up now",
            "port is speed=slow now",
            "port is lane=a now",
            "port is name=b now",
        ];
        let mut sorted = states;
        sorted.sort_unstable();
        check(&states, &sorted);
    }
}
