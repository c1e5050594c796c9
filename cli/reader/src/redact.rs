//! Redaction: removes keys, tokens, addresses and user names from lines.
//!
//! A secret becomes `[secret]`. A name becomes an alias such as `NODE_1`, the same one for the same name everywhere in a
//! request, so that the reader can follow it through the logs; [`Redactor::restore`] replaces the aliases of an answer.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Replacement of a secret.
const SECRET: &str = "[secret]";
/// Characters of a run that may be a key: with digits, upper-case and lower-case letters.
const KEY_CHARS: usize = 32;
/// Users that every machine has.
const COMMON_USERS: [&str; 4] = ["root", "nobody", "user", "users"];

/// First parts of attributes in Python, such as `self.net`, which have the form of a host name.
const ATTRIBUTE_OWNERS: [&str; 8] = ["self", "cls", "model", "module", "torch", "config", "args", "threading"];

/// Kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameKind {
    Node,
    Host,
    Address,
    Device,
    User,
    /// Digest or identifier in hexadecimal digits, which may be a key.
    Identifier,
}

impl NameKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Node => "NODE",
            Self::Host => "HOST",
            Self::Address => "ADDRESS",
            Self::Device => "DEVICE",
            Self::User => "USER",
            Self::Identifier => "ID",
        }
    }
}

/// Redactor of the lines of one request.
#[derive(Debug, Default)]
pub struct Redactor {
    /// Names of nodes, longest first: a name may be the beginning of another.
    nodes: Vec<String>,
    /// Names of users, longest first.
    users: Vec<String>,
    /// Name to alias.
    aliases: BTreeMap<String, String>,
    counts: BTreeMap<NameKind, u32>,
}

impl Redactor {
    /// Makes a redactor that knows these names of nodes and users wherever they stand.
    pub fn new(nodes: impl IntoIterator<Item = String>, users: impl IntoIterator<Item = String>) -> Self {
        let sorted = |names: &mut Vec<String>| {
            names.retain(|name| name.len() > 2 && !COMMON_USERS.contains(&name.as_str()));
            names.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            names.dedup();
        };
        let (mut nodes, mut users): (Vec<_>, Vec<_>) = (nodes.into_iter().collect(), users.into_iter().collect());
        sorted(&mut nodes);
        sorted(&mut users);
        Self {
            nodes,
            users,
            ..Self::default()
        }
    }

    /// Returns a line without secrets, addresses and names of machines and users.
    pub fn line(&mut self, line: &str) -> String {
        let line = secrets(line);
        // A serial number has the form of a key, too.
        let line = DEVICE.replace_all(&line, |found: &Captures<'_>| self.alias(NameKind::Device, &found[0]));
        let line = self.runs(&line);
        let line = self.users_of_forms(&line);
        let line = self.machines(&line);
        self.known_names(&line)
    }

    /// Replaces the aliases in a text by the names that they stand for.
    pub fn restore(&self, text: &str) -> String {
        ALIAS
            .replace_all(text, |found: &Captures<'_>| {
                let name = self.aliases.iter().find(|(_, alias)| alias.as_str() == &found[0]);
                name.map_or_else(|| found[0].to_owned(), |(name, _)| name.clone())
            })
            .into_owned()
    }

    fn alias(&mut self, kind: NameKind, name: &str) -> String {
        if let Some(alias) = self.aliases.get(name) {
            return alias.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let alias = format!("{}_{count}", kind.prefix());
        self.aliases.insert(name.to_owned(), alias.clone());
        alias
    }

    /// Replaces long runs of characters that look as keys and digests do.
    fn runs(&mut self, line: &str) -> String {
        let runs = RUN.replace_all(line, |found: &Captures<'_>| match form_of(&found[0]) {
            RunForm::Hexadecimal => self.alias(NameKind::Identifier, &found[0]),
            RunForm::Key => SECRET.to_owned(),
            RunForm::Other => found[0].to_owned(),
        });
        runs.into_owned()
    }

    /// Replaces users in the forms of paths, identifiers and schedulers.
    fn users_of_forms(&mut self, line: &str) -> String {
        let mut line = MAILBOX.replace_all(line, "[mailbox]").into_owned();
        for form in USER_FORMS.iter() {
            line = form
                .replace_all(&line, |found: &Captures<'_>| {
                    let user = &found[2];
                    let is_alias = ALIAS.is_match(user);
                    if is_alias || COMMON_USERS.contains(&user) {
                        return found[0].to_owned();
                    }
                    format!("{}{}{}", &found[1], self.alias(NameKind::User, user), &found[3])
                })
                .into_owned();
        }
        line
    }

    /// Replaces addresses and qualified host names.
    fn machines(&mut self, line: &str) -> String {
        let line = IPV6.replace_all(line, |found: &Captures<'_>| {
            let text = &found[0];
            // Names of C++ such as a::b have the form of an address.
            let is_address = text.parse::<Ipv6Addr>().is_ok() && text.matches(':').count() > 3;
            if is_address {
                self.alias(NameKind::Address, text)
            } else {
                text.to_owned()
            }
        });
        let line = IPV4.replace_all(&line, |found: &Captures<'_>| self.alias(NameKind::Address, &found[0]));
        let line = HOST.replace_all(&line, |found: &Captures<'_>| {
            let (label, _) = found[0].split_once('.').unwrap_or((&found[0], ""));
            if ATTRIBUTE_OWNERS.contains(&label) {
                return found[0].to_owned();
            }
            let node = self.nodes.iter().find(|node| *node == label).cloned();
            match node {
                Some(node) => self.alias(NameKind::Node, &node),
                None => self.alias(NameKind::Host, &found[0]),
            }
        });
        line.into_owned()
    }

    /// Replaces whole words that are known names.
    fn known_names(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for (kind, names) in [
            (NameKind::Node, self.nodes.clone()),
            (NameKind::User, self.users.clone()),
        ] {
            for name in names {
                if line.contains(&name) {
                    let alias = self.alias(kind, &name);
                    line = replace_word(&line, &name, &alias);
                }
            }
        }
        line
    }
}

/// Replaces occurrences of a word that no letter, digit, `-` or `_` adjoins.
fn replace_word(line: &str, word: &str, with: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let before_last = before.chars().next_back().or_else(|| out.chars().next_back());
        let is_whole = !before_last.is_some_and(is_part) && !after.chars().next().is_some_and(is_part);
        out.push_str(before);
        out.push_str(if is_whole { with } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Replaces keys, tokens and passwords.
fn secrets(line: &str) -> String {
    let line = URL_USER.replace_all(line, "$1");
    let line = URL_QUERY.replace_all(&line, "$1?[query]");
    let line = BEARER.replace_all(&line, format!("$1 {SECRET}"));
    let line = KNOWN_KEY.replace_all(&line, SECRET);
    let line = NAMED_SECRET.replace_all(&line, |found: &Captures<'_>| {
        let (name, value) = (found[1].to_ascii_lowercase(), &found[3]);
        // Counts and tokenizers of language models.
        let is_count = value.trim_end_matches([',', ';', ')', '}', ']']).parse::<f64>().is_ok();
        if is_count || name.contains("tokeniz") || name.ends_with("tokens") || value.starts_with(SECRET) {
            return found[0].to_owned();
        }
        format!("{}{}{SECRET}", &found[1], &found[2])
    });
    line.into_owned()
}

/// Form of a long run of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunForm {
    Hexadecimal,
    Key,
    /// A name, such as that of a function.
    Other,
}

fn form_of(run: &str) -> RunForm {
    let has = |is: fn(&char) -> bool| run.chars().filter(is).count();
    let digits = has(char::is_ascii_digit);
    let is_hex = run.chars().all(|c| c.is_ascii_hexdigit());
    let is_mangled = run.starts_with("_Z");
    let is_mixed = has(char::is_ascii_uppercase) > 2 && has(char::is_ascii_lowercase) > 2 && digits > 2;
    if run.len() < KEY_CHARS || is_mangled {
        RunForm::Other
    } else if is_hex {
        RunForm::Hexadecimal
    } else if is_mixed {
        RunForm::Key
    } else {
        RunForm::Other
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

static ALIAS: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(?:NODE|HOST|ADDRESS|DEVICE|USER|ID)_[0-9]+\b"));

static URL_USER: LazyLock<Regex> = LazyLock::new(|| regex(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+@"));
static URL_QUERY: LazyLock<Regex> = LazyLock::new(|| regex(r#"(://[^\s?"'<>]*)\?[^\s"'<>]+"#));
static BEARER: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"));
/// Keys by the prefixes that their issuers document: AWS, Hugging Face, GitHub, GitLab, OpenAI, Slack, Google, NVIDIA; JWT.
static KNOWN_KEY: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}",
        r"|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}",
        r"|nvapi-[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?)",
    ))
});
static NAMED_SECRET: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)\b([\w.-]*(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?",
        r#"|authorization)[\w-]*)(["']?\s*[=:]\s*["']?|["']?\s*,\s*["'])([^\s"']+)"#,
    ))
});
/// Characters of keys; `/` is left out, so that paths fall into their parts.
static RUN: LazyLock<Regex> = LazyLock::new(|| regex(r"[A-Za-z0-9+=_-]{32,}"));

static MAILBOX: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b"));
/// Users: text before, name, text after.
static USER_FORMS: LazyLock<[Regex; 5]> = LazyLock::new(|| {
    [
        regex(r"((?:/home|/Users|\\Users)[/\\])([^/\\\s:'\x22,;)]+)()"),
        regex(
            r"(?i)(\b(?:user|username|user_name|login|owner|userid)['\x22]?\s*[=:]\s*['\x22]?)([A-Za-z_][A-Za-z0-9_.-]*)()",
        ),
        regex(r"(?i)(\b(?:for|of|by) user ['\x22]?)([A-Za-z_][A-Za-z0-9_.-]*)()"),
        regex(r"(\b[ug]id=[0-9]+\()([^)]+)(\))"),
        regex(r"()\b([A-Za-z_][A-Za-z0-9_.-]*)(@[A-Za-z0-9])"),
    ]
});

/// Hardware addresses, UUIDs and serial numbers of GPUs.
static DEVICE: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)\b(?:[0-9a-f]{2}(?::[0-9a-f]{2}){5,7}|(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}",
        r"-[0-9a-f]{12})\b",
    ))
});
static IPV6: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}"));
static IPV4: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})\b"));
/// Qualified host names: of public domains, of clouds and of clusters.
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)\b[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*",
        r"\.(?:com|net|org|edu|gov|mil|internal|intern|local|localdomain|lan|corp|cluster|cloud|de|uk|fr|ch|eu|cn|jp|kr)\b",
    ))
});

#[cfg(test)]
mod tests;
