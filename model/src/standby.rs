//! Standby processes of a job: Python interpreters that have imported modules and wait to become ranks.

use serde::{Deserialize, Serialize};

/// Standby processes that each node of a job holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyPolicy {
    /// Processes on each node; an agent starts no more than the node has ranks.
    pub count: u32,
    /// Python modules that they import; `torch` is skipped where it is not installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<String>,
}

/// Command of a Python interpreter that a standby process can carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyCommand {
    /// Program of the interpreter, as in the command.
    pub interpreter: String,
    /// Options of the interpreter.
    pub options: Vec<String>,
    /// Program that the interpreter runs.
    pub target: StandbyTarget,
    /// Arguments of the target.
    pub arguments: Vec<String>,
}

/// Program that an interpreter runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandbyTarget {
    /// Path of a script, or of a folder or archive with `__main__`.
    Script(String),
    /// Module of the option `-m`.
    Module(String),
}

/// Options of one letter that take no value and leave the way to the script unchanged.
const FLAGS: &str = "bBdEIOPqRsSuv";

impl StandbyCommand {
    /// Parses a command as CPython does.
    ///
    /// # Errors
    ///
    /// The reason for which no standby process can carry out the command, as the end of a sentence.
    pub fn parse(command: &[String]) -> Result<Self, String> {
        let (interpreter, words) = command.split_first().ok_or("there is no command")?;
        if !is_python(interpreter) {
            return Err(format!("`{interpreter}` is not a Python interpreter"));
        }
        let mut parsed = Self {
            interpreter: interpreter.clone(),
            options: Vec::new(),
            target: StandbyTarget::Script(String::new()),
            arguments: Vec::new(),
        };
        let mut words = words.iter();
        loop {
            let word = words.next().ok_or("the interpreter has no script and no module")?;
            if word == "--check-hash-based-pycs" {
                let value = words.next().ok_or("an option has no value")?;
                parsed.options.extend([word.clone(), value.clone()]);
                continue;
            }
            let letters = match word.strip_prefix('-') {
                None if word.ends_with(".pyc") => return Err(format!("`{word}` is a compiled script")),
                None => {
                    parsed.target = StandbyTarget::Script(word.clone());
                    break;
                }
                Some("") => return Err("the script comes from standard input".to_owned()),
                Some(letters) if letters.starts_with('-') => return Err(format!("the option {word} is not supported")),
                Some(letters) => letters,
            };
            if let Some(module) = parsed.take_letters(letters, &mut words)? {
                parsed.target = StandbyTarget::Module(module);
                break;
            }
        }
        parsed.arguments = words.cloned().collect();
        Ok(parsed)
    }

    /// Takes the letters of one word; returns the module if they end with `-m`.
    fn take_letters<'a>(
        &mut self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<Option<String>, String> {
        for (at, letter) in letters.char_indices() {
            let rest = &letters[at + letter.len_utf8()..];
            let before = &letters[..at];
            match letter {
                'W' | 'X' => {
                    self.options.push(format!("-{letters}"));
                    if rest.is_empty() {
                        self.options.push(words.next().ok_or("an option has no value")?.clone());
                    }
                    return Ok(None);
                }
                'm' => {
                    if !before.is_empty() {
                        self.options.push(format!("-{before}"));
                    }
                    if !rest.is_empty() {
                        return Ok(Some(rest.to_owned()));
                    }
                    return Ok(Some(words.next().ok_or("the option -m has no module")?.clone()));
                }
                'c' => return Err("its program is the text of the option -c".to_owned()),
                letter if FLAGS.contains(letter) => {}
                letter => return Err(format!("the option -{letter} is not supported")),
            }
        }
        self.options.push(format!("-{letters}"));
        Ok(None)
    }
}

/// Returns true for the file name of a Python interpreter: `python`, `python3`, `python3.13t`.
fn is_python(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let version = name
        .strip_prefix("python")
        .map(|rest| rest.trim_end_matches(['t', 'd']));
    version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StandbyCommand, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        StandbyCommand::parse(&words)
    }

    fn check(text: &str, options: &str, target: StandbyTarget, arguments: &str) {
        let parsed = parse(text).expect("it has standby processes");
        assert_eq!(parsed.options.join(" "), options, "{text}");
        assert_eq!(parsed.target, target, "{text}");
        assert_eq!(parsed.arguments.join(" "), arguments, "{text}");
    }

    #[test]
    fn scripts_and_modules_are_found_behind_the_options() {
        let script = |path: &str| StandbyTarget::Script(path.to_owned());
        let module = |name: &str| StandbyTarget::Module(name.to_owned());
        check("python train.py --lr 1", "", script("train.py"), "--lr 1");
        check("/v/bin/python3.13t -uB a.py -m x", "-uB", script("a.py"), "-m x");
        check(
            "python3 -X dev -Wdefault -O a.py",
            "-X dev -Wdefault -O",
            script("a.py"),
            "",
        );
        check("python3 -Xfaulthandler -m a.b c", "-Xfaulthandler", module("a.b"), "c");
        check("python3 -um a.b -c", "-u", module("a.b"), "-c");
        check("python3 -ma.b", "", module("a.b"), "");
        check(
            "python3 --check-hash-based-pycs never folder",
            "--check-hash-based-pycs never",
            script("folder"),
            "",
        );
    }

    #[test]
    fn other_commands_have_a_reason() {
        let check = |text: &str, reason: &str| assert_eq!(parse(text), Err(reason.to_owned()), "{text}");
        check("bash train.sh", "`bash` is not a Python interpreter");
        check("torchrun train.py", "`torchrun` is not a Python interpreter");
        check("env python3 train.py", "`env` is not a Python interpreter");
        check("pythonw train.py", "`pythonw` is not a Python interpreter");
        check("python3 -c pass", "its program is the text of the option -c");
        check("python3 -uc pass", "its program is the text of the option -c");
        check("python3 -i train.py", "the option -i is not supported");
        check("python3 --version", "the option --version is not supported");
        check("python3 - a", "the script comes from standard input");
        check("python3 -u", "the interpreter has no script and no module");
        check("python3 train.pyc", "`train.pyc` is a compiled script");
        check("", "there is no command");
    }
}
