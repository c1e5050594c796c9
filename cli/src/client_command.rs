//! Commands in hints that reach the same controller as the command that prints them.

use std::path::PathBuf;

use crate::args::CommonArgs;

/// Options with which a command was called and that a further command requires, as words of a shell.
///
/// Settings of the environment apply to a further command in the same shell, so that only options are repeated.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandOptions(Vec<String>);

impl CommandOptions {
    /// Collects the options of a command; `controller` is the value of `--controller`.
    pub(crate) fn of(common: &CommonArgs, controller: Option<&str>) -> Self {
        let path = |path: &Option<PathBuf>| path.as_deref().map(|path| path.display().to_string());
        let options = [
            ("--controller", controller.map(str::to_owned)),
            ("--config", path(&common.config)),
            ("--identity-ca", path(&common.identity_ca)),
            ("--identity-certificate", path(&common.identity_certificate)),
            ("--identity-key", path(&common.identity_key)),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Self(
            given
                .map(|(name, value)| format!("{name} {}", quoted(&value)))
                .collect(),
        )
    }

    /// Formats a command in backquotes; `operand` is its last argument.
    pub(crate) fn command(&self, words: &str, operand: Option<&str>) -> String {
        let mut parts = vec![format!("rankguard {words}")];
        parts.extend(self.0.iter().cloned());
        // A name may begin with a hyphen, as an option does.
        let is_like_option = operand.is_some_and(|operand| operand.starts_with('-'));
        parts.extend(is_like_option.then(|| "--".to_owned()));
        parts.extend(operand.map(quoted));
        format!("`{}`", parts.join(" "))
    }
}

/// Quotes a word for a shell where it requires it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(config: Option<&str>, key: Option<&str>, controller: Option<&str>) -> CommandOptions {
        let common = CommonArgs {
            config: config.map(PathBuf::from),
            log: Some("debug".to_owned()),
            log_format: None,
            identity_ca: None,
            identity_certificate: None,
            identity_key: key.map(PathBuf::from),
        };
        CommandOptions::of(&common, controller)
    }

    #[test]
    fn a_command_repeats_what_selects_the_controller() {
        let none = CommandOptions::default();
        assert_eq!(none.command("logs", Some("llm")), "`rankguard logs llm`");
        assert_eq!(none.command("status", None), "`rankguard status`");
        assert_eq!(none.command("cancel", Some("-x")), "`rankguard cancel -- -x`");
        let all = options(Some("my files/it's.toml"), Some("key.pem"), Some("10.0.0.1:7700"));
        assert_eq!(
            all.command("cases show", Some("3")),
            r"`rankguard cases show --controller 10.0.0.1:7700 --config 'my files/it'\''s.toml' --identity-key key.pem 3`"
        );
    }
}
