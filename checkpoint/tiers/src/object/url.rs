//! From a URL to a store.

use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

use super::ObjectError;

/// Settings that may come from the environment, by how their names begin; others are nobody's business here.
const SETTINGS: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// The store behind a URL and the place in it. Credentials come from the environment or from what the client library
/// asks the machine for; a URL that holds some is refused, because URLs are printed.
pub(super) fn open(text: &str) -> Result<(Arc<dyn ObjectStore>, Path), ObjectError> {
    let refuse = |url: &str, problem: String| ObjectError::Url {
        url: url.to_owned(),
        problem,
    };
    let url = Url::parse(text).map_err(|problem| {
        refuse(
            text,
            format!("{problem}; write file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"),
        )
    })?;
    // The text itself is not repeated: it would put the secret on the screen.
    let shown = format!(
        "{}://{}{}",
        url.scheme(),
        url.host_str().unwrap_or_default(),
        url.path()
    );
    let secret = url.password().is_some() || url.query().is_some() || url.fragment().is_some();
    if secret || !url.username().is_empty() && !url.scheme().starts_with("abfs") {
        let problem = "put credentials and options into the environment, not into the URL".to_owned();
        return Err(refuse(&shown, problem));
    }
    let (scheme, _) = ObjectStoreScheme::parse(&url).map_err(|problem| refuse(&shown, problem.to_string()))?;
    match scheme {
        ObjectStoreScheme::Local => {
            let path = url
                .to_file_path()
                .ok()
                .ok_or_else(|| refuse(&shown, "it names no folder here".to_owned()))?;
            folder(&path).map_err(|problem| refuse(&shown, problem.to_string()))
        }
        ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::GoogleCloudStorage | ObjectStoreScheme::MicrosoftAzure => {
            let named = |name: &str| SETTINGS.iter().any(|prefix| name.starts_with(prefix));
            let settings = std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .filter(|(name, _)| named(name))
                .map(|(name, value)| (name.to_ascii_lowercase(), value));
            let opened = object_store::parse_url_opts(&url, settings);
            let (store, path) = opened.map_err(|problem| refuse(&shown, problem.to_string()))?;
            Ok((Arc::from(store), path))
        }
        _ => {
            let problem = "checkpoints go to file, s3, gs or az".to_owned();
            Err(refuse(&shown, problem))
        }
    }
}

/// Folders that become empty go with their last object, but none that is there now: it may have been made for this, with
/// an owner and rights of its own.
fn folder(path: &FilePath) -> object_store::Result<(Arc<dyn ObjectStore>, Path)> {
    let there = path
        .ancestors()
        .find(|folder| folder.is_dir())
        .unwrap_or(FilePath::new("/"));
    let below = path.strip_prefix(there).unwrap_or(path);
    let store = LocalFileSystem::new_with_prefix(there)?;
    let base = Path::parse(below.to_string_lossy())?;
    Ok((Arc::new(store.with_fsync(true).with_automatic_cleanup(true)), base))
}
