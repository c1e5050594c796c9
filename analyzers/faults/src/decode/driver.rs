//! Versions of the NVIDIA driver.

use std::fmt;

/// A driver version (`570.86.15`): branch, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion {
    /// Branch, at least 100 (570 for R570).
    pub branch: u32,
    pub minor: u32,
    /// Patch number; 0 if absent.
    pub patch: u32,
}

impl DriverVersion {
    /// Parses a bare version, or the line that the kernel module writes when it is loaded (`NVRM:
    /// loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build ...`).
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(version) = Self::bare(text) {
            return Some(version);
        }
        let (_, said) = text
            .split_once("NVIDIA UNIX")
            .or_else(|| text.split_once("NVRM version:"))?;
        // The first word of that shape is the version; a date or a compiler version follows it.
        said.split_whitespace().take(16).find_map(Self::bare)
    }

    fn bare(word: &str) -> Option<Self> {
        let mut numbers = word.split('.').map(|part| {
            let digits = !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse::<u32>().ok()).flatten()
        });
        let branch = numbers.next()??;
        let minor = numbers.next()??;
        let patch = match numbers.next() {
            Some(patch) => patch?,
            None => 0,
        };
        // Driver branches have had three digits since 2009; a smaller number is the version of another
        // program.
        (branch >= 100 && numbers.next().is_none()).then_some(Self { branch, minor, patch })
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.branch, self.minor)?;
        if self.patch > 0 {
            write!(f, ".{:02}", self.patch)?;
        }
        Ok(())
    }
}
