//! Replacement of key and certificate of a process.
//!
//! Two files cannot be replaced in one step. The order is: the new key under another name (`key.pem.next`), the
//! certificate, then the key under its own name. A reader uses the key, of the two, that belongs to the certificate. So at
//! every moment, also after a power failure or on a full disk, the files are the old pair or the new one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rankguard_files::private::replace_file;

use crate::files::IdentityFiles;

/// Mode of a key and of a certificate.
const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o600;
/// Mode of the authority's certificate.
const CA_MODE: u32 = 0o644;

/// Returns the path of the key for the next certificate.
pub(crate) fn next_key(key: &Path) -> PathBuf {
    let mut name = key.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    key.with_file_name(name)
}

impl IdentityFiles {
    /// Completes a replacement that was interrupted after the new certificate was written.
    pub fn settle(&self) -> io::Result<()> {
        if self.certificate != self.key && self.next_key_is_in_use() {
            std::fs::rename(next_key(&self.key), &self.key)?;
        }
        Ok(())
    }

    /// Returns the key that an earlier, unanswered request for a certificate used.
    pub fn pending_key(&self) -> Option<String> {
        rankguard_files::read_text(&next_key(&self.key), crate::authority::KEY_BYTES).ok()
    }

    /// Writes the key for the next certificate, before the certificate is requested.
    pub fn store_next_key(&self, key: &str) -> io::Result<()> {
        replace_file(&next_key(&self.key), key.as_bytes(), KEY_MODE)
    }

    /// Puts a certificate for the key of [`store_next_key`](Self::store_next_key) into use.
    pub fn store_certificate(&self, chain: &str) -> io::Result<()> {
        if self.certificate == self.key {
            // Key and certificate share a file.
            let next = next_key(&self.key);
            let key = rankguard_files::read_text(&next, crate::authority::KEY_BYTES)?;
            replace_file(&self.key, format!("{key}{chain}").as_bytes(), KEY_MODE)?;
            return std::fs::remove_file(next);
        }
        replace_file(&self.certificate, chain.as_bytes(), CERTIFICATE_MODE)?;
        std::fs::rename(next_key(&self.key), &self.key)?;
        let folder = self.key.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Writes the certificates of the authority.
    pub fn store_ca(&self, pem: &str) -> io::Result<()> {
        replace_file(&self.ca, pem.as_bytes(), CA_MODE)
    }
}
