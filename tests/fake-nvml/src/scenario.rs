//! Scenario file: facts with their start times.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::language::{ScenarioFact, growth_of, parse};
use crate::{INVALID_ARGUMENT, NOT_SUPPORTED, place};

/// Functions with which a reader of many values begins: they check for a changed file. The others do only if the last
/// check is longer ago than [`FRESH`].
const FIRST: [&str; 2] = ["count", "handle"];

/// Time for which the file is assumed unchanged: one poll of eight devices makes some hundred calls.
const FRESH: Duration = Duration::from_millis(20);

/// Lines of a file, indexed by their first words.
struct ScenarioLines {
    all: Vec<ScenarioFact>,
    /// Indices into `all`, ascending.
    named: HashMap<String, Vec<usize>>,
}

impl ScenarioLines {
    fn of(all: Vec<ScenarioFact>) -> Self {
        let mut named: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, line) in all.iter().enumerate() {
            let first = line.words.first().cloned().unwrap_or_default();
            named.entry(first).or_default().push(place);
        }
        Self { all, named }
    }

    fn named(&self, first: &str) -> impl DoubleEndedIterator<Item = &ScenarioFact> {
        let places = self.named.get(first).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| self.all.get(*place))
    }
}

/// Scenario at the time of one call.
pub(crate) struct Scenario {
    lines: Arc<ScenarioLines>,
    /// Time since the start.
    now: Duration,
}

impl Scenario {
    /// Begins a function: hangs or fails if the scenario states so.
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

    /// Returns the scenario; with `known`, lines that were read within [`FRESH`] are used without a check.
    fn as_of(known: bool) -> Result<Self, c_uint> {
        Ok(Self {
            lines: lines(known).ok_or(INVALID_ARGUMENT)?,
            now: since_start(),
        })
    }

    /// Returns the facts that are true now and begin with this word, in the order of the file, each with its age.
    fn facts(&self, first: &str) -> impl DoubleEndedIterator<Item = (Duration, &[String])> {
        let lines = self.lines.named(first);
        lines.filter_map(|line| Some((self.now.checked_sub(line.from)?, line.words.as_slice())))
    }

    /// Returns the word behind `words` in the last fact that begins with them, and the whole fact.
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

    /// Returns a stated error code; 0 and no statement mean success.
    pub(crate) fn code(&self, words: &[&str]) -> Result<(), c_uint> {
        match self.number(words).and_then(|code| c_uint::try_from(code).ok()) {
            None | Some(0) => Ok(()),
            Some(code) => Err(code),
        }
    }

    /// Returns the number of devices.
    pub(crate) fn count(&self) -> c_uint {
        let count = self.number(&["count"]).unwrap_or(0);
        c_uint::try_from(count).unwrap_or(c_uint::MAX)
    }

    /// Returns a device's stated error, which applies to every function.
    pub(crate) fn device(&self, index: &str) -> Result<(), c_uint> {
        self.code(&["error", index])
    }

    /// Returns a number of a device.
    pub(crate) fn value(&self, name: &str, index: &str) -> Result<u64, c_uint> {
        self.number(&[name, index]).ok_or(NOT_SUPPORTED)
    }

    /// Returns a word of a device.
    pub(crate) fn word(&self, name: &str, index: &str) -> Option<&str> {
        self.find(&[name, index]).map(|(word, _)| word)
    }

    /// Returns true if exactly this fact is stated.
    #[cfg(not(feature = "old-driver"))]
    pub(crate) fn says(&self, words: &[&str]) -> bool {
        let first = words.first().copied().unwrap_or_default();
        self.facts(first).any(|(_, fact)| {
            fact.len() == words.len() && words.iter().zip(fact.iter()).all(|(want, word)| want == word)
        })
    }

    /// Returns every `name DEVICE NUMBER` in the order of the file.
    #[cfg(not(feature = "old-driver"))]
    pub(crate) fn all(&self, name: &str) -> Vec<(c_uint, u64)> {
        let numbers = self
            .facts(name)
            .filter_map(|(_, fact)| Some((fact.get(1)?.parse().ok()?, fact.get(2)?.parse().ok()?)));
        numbers.collect()
    }
}

/// Identity of the file's content: a replacement by renaming changes the inode.
type FileIdentity = (u64, i64, i64, u64);

/// Version of the file, and the time of the last check.
struct CachedScenario {
    version: FileIdentity,
    at: Instant,
    /// `None` if a line is invalid.
    lines: Option<Arc<ScenarioLines>>,
}

/// Returns the lines of the file, which is read again if it has changed since the last check.
fn lines(known_will_do: bool) -> Option<Arc<ScenarioLines>> {
    static KNOWN: Mutex<Option<CachedScenario>> = Mutex::new(None);
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
            parse(&text).ok().map(|all| Arc::new(ScenarioLines::of(all)))
        }
    };
    *known = Some(CachedScenario {
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
