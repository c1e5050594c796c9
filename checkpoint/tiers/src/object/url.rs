//! Opening of object stores by URL.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use super::ObjectError;
use super::connect::FailFastConnector;
use super::upload::MultipartHandle;

/// Prefixes of the environment variables that configure clients; others are ignored.
const SETTINGS: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Returns the retry policy of the client. A restarting store takes some seconds, and a failed part costs all parts of
/// its shard. Retries end before [`super::ObjectLimits::deadline`], the last pause and the last try (30 s) included, so the
/// error reports the store's answer instead of a time-out.
fn patience() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(3),
            base: 2.0,
        },
        max_retries: 100,
        retry_timeout: Duration::from_secs(20),
    }
}

/// Builds a client with the settings of the environment.
macro_rules! client {
    ($builder:ty, $url:expr) => {
        settings()
            .fold(
                <$builder>::new().with_url($url.as_str()),
                |builder, (key, value)| match key.parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                },
            )
            .with_retry(patience())
            .with_http_connector(FailFastConnector)
            .build()
            .map(|store| {
                let store = Arc::new(store);
                let multipart: Arc<dyn MultipartStore> = store.clone();
                (store as Arc<dyn ObjectStore>, multipart)
            })
    };
}

/// Store behind a URL.
pub(super) struct OpenedStore {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Path of the checkpoints in it.
    pub(super) base: Path,
    /// The same store as a multipart interface, if uploads have ids.
    pub(super) multipart: Option<MultipartHandle>,
    /// Folder of a `file://` store.
    pub(super) folder: Option<PathBuf>,
}

/// Parsed URL of a place for checkpoints.
pub(super) struct StoreUrl {
    url: Url,
    scheme: ObjectStoreScheme,
    path: Path,
    /// URL without credentials, for messages: the original text may contain a secret.
    shown: String,
}

impl StoreUrl {
    fn refuse(&self, problem: String) -> ObjectError {
        refuse(&self.shown, problem)
    }
}

fn refuse(url: &str, problem: String) -> ObjectError {
    ObjectError::Url {
        url: url.to_owned(),
        problem,
    }
}

/// Parses a URL without access to environment or network. Refuses one that holds credentials, because URLs are printed.
pub(super) fn parse(text: &str) -> Result<StoreUrl, ObjectError> {
    let url = Url::parse(text).map_err(|problem| {
        refuse(
            text,
            format!("{problem}; write file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"),
        )
    })?;
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
    let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(|problem| refuse(&shown, problem.to_string()))?;
    match scheme {
        ObjectStoreScheme::Local if url.to_file_path().is_err() => {
            Err(refuse(&shown, "it names no folder here".to_owned()))
        }
        ObjectStoreScheme::Local
        | ObjectStoreScheme::AmazonS3
        | ObjectStoreScheme::GoogleCloudStorage
        | ObjectStoreScheme::MicrosoftAzure => Ok(StoreUrl {
            url,
            scheme,
            path,
            shown,
        }),
        _ => Err(refuse(&shown, "checkpoints go to file, s3, gs or az".to_owned())),
    }
}

/// Opens the store at a URL. Credentials come from the environment or from the machine's metadata service.
pub(super) fn open(text: &str) -> Result<OpenedStore, ObjectError> {
    let named = parse(text)?;
    let client = match named.scheme {
        ObjectStoreScheme::AmazonS3 => client!(AmazonS3Builder, named.url),
        ObjectStoreScheme::GoogleCloudStorage => client!(GoogleCloudStorageBuilder, named.url),
        ObjectStoreScheme::MicrosoftAzure => client!(MicrosoftAzureBuilder, named.url),
        _ => {
            let path = named.url.to_file_path().unwrap_or_default();
            let opened = folder(&path).map_err(|problem| named.refuse(problem.to_string()))?;
            return Ok(OpenedStore {
                store: opened.0,
                base: opened.1,
                multipart: None,
                folder: Some(path),
            });
        }
    };
    match client {
        Ok((store, multipart)) => Ok(OpenedStore {
            store,
            base: named.path,
            multipart: Some(MultipartHandle(multipart)),
            folder: None,
        }),
        Err(problem) => Err(named.refuse(format!("{problem}{}", hint(&problem.to_string())))),
    }
}

/// Returns the environment variables that configure clients.
fn settings() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| SETTINGS.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
}

/// Returns a remedy for errors in which the client names only the missing value.
fn hint(problem: &str) -> &'static str {
    if problem.contains("Account must be specified") {
        "; set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or another credential"
    } else {
        ""
    }
}

/// Opens a folder as a store. A folder that becomes empty is removed with its last object, except those that exist now:
/// they may have been created with a particular owner and permissions.
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
