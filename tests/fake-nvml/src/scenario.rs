//! The scenario file: facts, and from when each of them is true.

use std::ffi::c_uint;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::language::{Line, growth_of, parse};
use crate::{INVALID_ARGUMENT, NOT_SUPPORTED, place};

/// The scenario as one call sees it.
pub(crate) struct Scenario {
    lines: Arc<[Line]>,
    /// Since the start.
    now: Duration,
}

impl Scenario {
    /// What every call does first: it hangs or fails where the scenario says so.
    pub(crate) fn enter(call: &str) -> Result<Self, c_uint> {
        let mut now = Self::read()?;
        while now.find(&["hang", call]).is_some_and(|(word, _)| word != "off") {
            std::thread::sleep(Duration::from_millis(5));
            now = Self::read()?;
        }
        now.code(&["fail"])?;
        Ok(now)
    }

    pub(crate) fn read() -> Result<Self, c_uint> {
        Ok(Self {
            lines: lines().ok_or(INVALID_ARGUMENT)?,
            now: since_start(),
        })
    }

    /// What is true now, in the order of the file, and for how long.
    fn facts(&self) -> impl DoubleEndedIterator<Item = (Duration, &[String])> {
        let lines = self.lines.iter();
        lines.filter_map(|line| Some((self.now.checked_sub(line.from)?, line.words.as_slice())))
    }

    /// The word behind `words` in the last fact that begins with them, and the whole fact.
    fn find(&self, words: &[&str]) -> Option<(&str, (Duration, &[String]))> {
        let found = self.facts().rev().find(|(_, fact)| {
            fact.len() >= words.len()
                && words
                    .iter()
                    .zip(fact.iter())
                    .all(|(want, word)| want == word || word == "*")
        })?;
        let word = found.1.get(words.len()).map_or("", String::as_str);
        Some((word, found))
    }

    fn number(&self, words: &[&str]) -> Option<u64> {
        let (word, (age, fact)) = self.find(words)?;
        let base: u64 = word.parse().ok()?;
        let rate = fact.get(words.len() + 1).and_then(|growth| growth_of(growth));
        let growth = rate.map_or(0, |rate| (rate * age.as_secs_f64()) as u64);
        Some(base.saturating_add(growth))
    }

    /// An error that is stated; 0 and no statement are none.
    pub(crate) fn code(&self, words: &[&str]) -> Result<(), c_uint> {
        match self.number(words).and_then(|code| c_uint::try_from(code).ok()) {
            None | Some(0) => Ok(()),
            Some(code) => Err(code),
        }
    }

    /// Devices that are listed.
    pub(crate) fn count(&self) -> c_uint {
        let count = self.number(&["count"]).unwrap_or(0);
        c_uint::try_from(count).unwrap_or(c_uint::MAX)
    }

    /// A device that gives an error gives it for every call.
    pub(crate) fn device(&self, index: &str) -> Result<(), c_uint> {
        self.code(&["error", index])
    }

    /// A number of a device.
    pub(crate) fn value(&self, name: &str, index: &str) -> Result<u64, c_uint> {
        self.number(&[name, index]).ok_or(NOT_SUPPORTED)
    }

    /// A word of a device.
    pub(crate) fn word(&self, name: &str, index: &str) -> Option<&str> {
        self.find(&[name, index]).map(|(word, _)| word)
    }

    /// Whether this fact, whole, is stated.
    #[cfg(not(feature = "old-driver"))]
    pub(crate) fn says(&self, words: &[&str]) -> bool {
        self.facts().any(|(_, fact)| {
            fact.len() == words.len() && words.iter().zip(fact.iter()).all(|(want, word)| want == word)
        })
    }

    /// Every `name DEVICE NUMBER` in the order of the file.
    #[cfg(not(feature = "old-driver"))]
    pub(crate) fn all(&self, name: &str) -> Vec<(c_uint, u64)> {
        let of_name = self
            .facts()
            .filter(|(_, fact)| fact.first().is_some_and(|word| word == name));
        let numbers = of_name.filter_map(|(_, fact)| Some((fact.get(1)?.parse().ok()?, fact.get(2)?.parse().ok()?)));
        numbers.collect()
    }
}

/// What tells one content of the file from another: whoever changes it by renaming gives it another inode.
type Version = (u64, i64, i64, u64);

/// The lines of a version of the file; none where one of them means nothing.
type Known = (Version, Option<Arc<[Line]>>);

/// The lines of the file; it is read when it is another one than at the call before.
fn lines() -> Option<Arc<[Line]>> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let version = |about: &Metadata| (about.ino(), about.mtime(), about.mtime_nsec(), about.size());
    let now = std::fs::metadata(path()).map_or((0, 0, 0, 0), |about| version(&about));
    match &*known {
        Some((version, lines)) if *version == now => lines.clone(),
        _ => {
            let text = std::fs::read_to_string(path()).unwrap_or_default();
            let lines = parse(&text).ok().map(Arc::from);
            *known = Some((now, lines.clone()));
            lines
        }
    }
}

fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("RANKGUARD_NVML_SCENARIO") {
        Some(path) => path.into(),
        None => place::folder().join("scenario"),
    })
}

fn since_start() -> Duration {
    static START: OnceLock<Duration> = OnceLock::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let told = || std::env::var("RANKGUARD_NVML_START").ok()?.parse().ok();
    let start = START.get_or_init(|| told().map_or(now, Duration::from_millis));
    now.saturating_sub(*start)
}
