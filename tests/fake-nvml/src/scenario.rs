//! The scenario file: facts, and from when each of them is true.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::language::{Line, growth_of, parse};
use crate::{INVALID_ARGUMENT, NOT_SUPPORTED, place};

/// Calls that a reader of many values begins with: they look whether the file is another one. The others do where that was
/// longer ago than [`FRESH`].
const FIRST: [&str; 2] = ["count", "handle"];

/// For so long the file is taken to be the one that it was: some hundred calls are made in one look at eight devices.
const FRESH: Duration = Duration::from_millis(20);

/// The lines of a file, found by their first words.
struct Lines {
    all: Vec<Line>,
    /// Places in `all`, ascending.
    named: HashMap<String, Vec<usize>>,
}

impl Lines {
    fn of(all: Vec<Line>) -> Self {
        let mut named: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, line) in all.iter().enumerate() {
            let first = line.words.first().cloned().unwrap_or_default();
            named.entry(first).or_default().push(place);
        }
        Self { all, named }
    }

    fn named(&self, first: &str) -> impl DoubleEndedIterator<Item = &Line> {
        let places = self.named.get(first).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| self.all.get(*place))
    }
}

/// The scenario as one call sees it.
pub(crate) struct Scenario {
    lines: Arc<Lines>,
    /// Since the start.
    now: Duration,
}

impl Scenario {
    /// What every call does first: it hangs or fails where the scenario says so.
    pub(crate) fn enter(call: &str) -> Result<Self, c_uint> {
        let mut now = Self::as_of(!FIRST.contains(&call))?;
        while now.find(&["hang", call]).is_some_and(|(word, _)| word != "off") {
            std::thread::sleep(Duration::from_millis(5));
            now = Self::read()?;
        }
        now.code(&["fail"])?;
        Ok(now)
    }

    pub(crate) fn read() -> Result<Self, c_uint> {
        Self::as_of(false)
    }

    /// `known` says that what was read within [`FRESH`] will do.
    fn as_of(known: bool) -> Result<Self, c_uint> {
        Ok(Self {
            lines: lines(known).ok_or(INVALID_ARGUMENT)?,
            now: since_start(),
        })
    }

    /// What is true now and begins with this word, in the order of the file, and for how long.
    fn facts(&self, first: &str) -> impl DoubleEndedIterator<Item = (Duration, &[String])> {
        let lines = self.lines.named(first);
        lines.filter_map(|line| Some((self.now.checked_sub(line.from)?, line.words.as_slice())))
    }

    /// The word behind `words` in the last fact that begins with them, and the whole fact.
    fn find(&self, words: &[&str]) -> Option<(&str, (Duration, &[String]))> {
        let found = self.facts(words.first()?).rev().find(|(_, fact)| {
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
        let first = words.first().copied().unwrap_or_default();
        self.facts(first).any(|(_, fact)| {
            fact.len() == words.len() && words.iter().zip(fact.iter()).all(|(want, word)| want == word)
        })
    }

    /// Every `name DEVICE NUMBER` in the order of the file.
    #[cfg(not(feature = "old-driver"))]
    pub(crate) fn all(&self, name: &str) -> Vec<(c_uint, u64)> {
        let numbers = self
            .facts(name)
            .filter_map(|(_, fact)| Some((fact.get(1)?.parse().ok()?, fact.get(2)?.parse().ok()?)));
        numbers.collect()
    }
}

/// What tells one content of the file from another: whoever changes it by renaming gives it another inode.
type Version = (u64, i64, i64, u64);

/// A version of the file, and when it was last looked at.
struct Known {
    version: Version,
    at: Instant,
    /// None where a line means nothing.
    lines: Option<Arc<Lines>>,
}

/// The lines of the file; it is read when it is another one than at the call before.
fn lines(known_will_do: bool) -> Option<Arc<Lines>> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known
        .as_ref()
        .filter(|known| known_will_do && known.at.elapsed() < FRESH)
    {
        return known.lines.clone();
    }
    let version = |about: &Metadata| (about.ino(), about.mtime(), about.mtime_nsec(), about.size());
    let now = std::fs::metadata(path()).map_or((0, 0, 0, 0), |about| version(&about));
    let lines = match known.take() {
        Some(known) if known.version == now => known.lines,
        _ => {
            let text = std::fs::read_to_string(path()).unwrap_or_default();
            parse(&text).ok().map(|all| Arc::new(Lines::of(all)))
        }
    };
    *known = Some(Known {
        version: now,
        at: Instant::now(),
        lines: lines.clone(),
    });
    lines
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
