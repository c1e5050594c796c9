//! Environment of the submitter that ranks receive: the search path and the active virtual environment.
//!
//! Ranks find `python` where the submitter finds it. Nodes must share these directories; a directory that a node lacks
//! is skipped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Variable with the search path of programs.
const PATH: &str = "PATH";
/// Variables of the submitter that ranks receive.
const SENT: [&str; 2] = [PATH, "VIRTUAL_ENV"];

/// Adds the submitter's variables to a job's environment, unless the job sets its own PATH.
pub(super) fn add_submitter_variables(env: &mut BTreeMap<String, String>, value_of: impl Fn(&str) -> Option<OsString>) {
    if env.contains_key(PATH) {
        return;
    }
    for name in SENT {
        let value = value_of(name).and_then(|value| value.into_string().ok());
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            env.entry(name.to_owned()).or_insert(value);
        }
    }
}

/// Finds the file of a command's program on this machine, by the search path of the job.
pub(super) fn find_program(program: &str, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let folders = env.get(PATH)?.split(':').filter(|folder| !folder.is_empty());
    folders.map(|folder| Path::new(folder).join(program)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(own: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut env = own
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        add_submitter_variables(&mut env, |name| match name {
            "PATH" => Some("/v/bin:/bin".into()),
            "VIRTUAL_ENV" => Some("/v".into()),
            _ => Some("secret".into()),
        });
        env
    }

    #[test]
    fn ranks_get_path_and_environment_of_the_submitter_and_no_more() {
        assert_eq!(
            sent(&[]).into_iter().collect::<Vec<_>>(),
            [
                ("PATH".to_owned(), "/v/bin:/bin".to_owned()),
                ("VIRTUAL_ENV".to_owned(), "/v".to_owned()),
            ]
        );
        assert_eq!(sent(&[("VIRTUAL_ENV", "/w")])["VIRTUAL_ENV"], "/w");
        assert_eq!(sent(&[("PATH", "/bin")]).len(), 1);
    }

    #[test]
    fn a_program_is_found_by_the_path_of_the_job() {
        let env = BTreeMap::from([("PATH".to_owned(), "/nonexistent:/bin".to_owned())]);
        assert_eq!(find_program("sh", &env), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find_program("no-such-program", &env), None);
        assert_eq!(find_program("./x", &env), Some(PathBuf::from("./x")));
    }
}
