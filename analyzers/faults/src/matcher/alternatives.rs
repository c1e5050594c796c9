//! Lists of possible causes: `Some common causes include: (1) ..., (2) ..., or (3) ...`, `may have been ended by A or by B`.
//! Such a text decides for none of its parts, so a wording of a failure in it is no evidence of that failure.
//!
//! A list begins behind an introduction that names causes in the plural with a word of doubt (`possible causes`), or behind a
//! verb of possibility (`can happen when`, `possibly`). It ends with its sentence; numbered parts may be sentences of their
//! own. Behind a verb of possibility there have to be at least two parts: one alone is a suspicion, which is evidence.

use std::sync::LazyLock;

use regex::Regex;

/// Maximum part of a text before and after a match that is examined, bytes.
const REACH: usize = 1_024;

/// Introduction of a list, with its kind.
static INTRODUCTION: LazyLock<Regex> = LazyLock::new(|| {
    let doubt = "(?:some|several|many|various|common|possible|potential|likely|typical|usual|probable|frequent)";
    compile(&format!(
        r"(?i-u)\b(?P<causes>{doubt} (?:[\w-]+ ){{0,2}}(?:causes|reasons|explanations)\b)|\b(?:possibly|perhaps|maybe|probably|(?:can|may|might|could) (?:also |either |usually )?(?:happen|occur|be|have been|mean|indicate)|(?:usually|often|typically) (?:happens|occurs|means|indicates))\b"
    ))
});

/// Mark of the first or a later part of a list.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| compile(r"(?-u)(?:^|[\s,;:.])\(?[1-9a-e]\)\s"));

/// Word between the last two parts of a list.
static OR: LazyLock<Regex> = LazyLock::new(|| compile(r"(?i-u)(?:,|\s)or\s"));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Returns false only if no match in the text can be a part of a list, also not for other digits.
pub(super) fn may_list(text: &str) -> bool {
    INTRODUCTION.is_match(text)
}

/// Returns true for a text that announces a list of possible causes: `Possible causes:`.
pub fn introduces_causes(text: &str) -> bool {
    let mut all = INTRODUCTION.captures_iter(text);
    all.any(|introduction| introduction.name("causes").is_some())
}

/// Returns true if the match that begins at `from` is a part of a list of possible causes.
pub(super) fn is_listed(text: &str, from: usize) -> bool {
    let start = text.ceil_char_boundary(from.saturating_sub(REACH));
    let end = text.floor_char_boundary(from.saturating_add(REACH).min(text.len()));
    let part = &text[start..end];
    let from = from - start;
    INTRODUCTION.captures_iter(part).any(|introduction| {
        let begin = introduction.get_match().end();
        let Some(list) = (begin <= from).then(|| list_of(&part[begin..])) else {
            return false;
        };
        let has_parts =
            introduction.name("causes").is_some() || OR.is_match(list) || NUMBER.find_iter(list).count() > 1;
        from - begin < list.len() && has_parts
    })
}

/// Returns the list at the start of a text.
fn list_of(text: &str) -> &str {
    let first = sentence_end(text, 0);
    // The introduction may be a sentence of its own.
    let is_numbered = |from: usize| NUMBER.find(&text[from..]).is_some_and(|number| number.start() < 2);
    let mut end = first;
    while end < text.len() && is_numbered(end) {
        end = sentence_end(text, end + 1);
    }
    &text[..end]
}

/// Returns the index behind the end of the sentence that goes on at `from`.
fn sentence_end(text: &str, from: usize) -> usize {
    let is_end = |(at, c): &(usize, char)| {
        matches!(c, '.' | ';' | '!' | '?' | '\n') && text[at + 1..].chars().next().is_none_or(char::is_whitespace)
    };
    let mut ends = text.char_indices().skip_while(|(at, _)| *at < from).filter(is_end);
    ends.next().map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, matched: &str, expect: bool) {
        let from = text.find(matched).expect("the text has the match");
        assert_eq!(is_listed(text, from), expect, "{text}: {matched}");
        assert!(may_list(text) || !expect, "{text}");
    }

    #[test]
    fn a_list_of_causes_decides_for_none() {
        check(
            "Some common causes include: (1) the OOM killer, or (2) a crash",
            "OOM",
            true,
        );
        check(
            "There are some potential root causes. (1) It was killed. (2) It crashed by SIGSEGV.",
            "SIGSEGV",
            true,
        );
        check(
            "This can happen when a \t(1) raylet crashes (OOM) \t(2) network is slow",
            "OOM",
            true,
        );
        check(
            "worker 3 left: it may have been killed by the OOM killer or preempted",
            "OOM",
            true,
        );
        check("lost, possibly by an OOM kill or by a signal", "signal", true);
    }

    #[test]
    fn a_statement_beside_a_list_decides() {
        check(
            "Killed by the OOM killer. Possible reasons are leaks and large batches",
            "OOM",
            false,
        );
        check(
            "Possible causes: a leak or a large batch. Killed by the OOM killer.",
            "OOM",
            false,
        );
        check(
            "Some of your processes may have been killed by the out-of-memory handler.",
            "killed",
            false,
        );
        check("The root cause is the OOM killer", "OOM", false);
    }
}
