//! Where the files of a lake are: a folder, or a bucket of S3 or what speaks like it. A file is whole or not there, and
//! nothing is ever changed in place.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Runtime};

/// See the file's first comment.
pub(crate) enum Store {
    /// A folder.
    Folder(PathBuf),
    /// A bucket, with what stands before the keys.
    Bucket(Bucket),
}

pub(crate) struct Bucket {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    prefix: Key,
}

impl Store {
    /// A folder's path, or `s3://BUCKET/PREFIX`; credentials, region and endpoint are the environment's AWS_….
    pub(crate) fn open(place: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = place.split_once("://") else { return Ok(Self::Folder(place.into())) };
        if scheme != "s3" {
            return Err(format!("{place}: expected a folder or s3://BUCKET/PREFIX"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(format!("{place}: names no bucket"));
        }
        let said = |error: &dyn std::fmt::Display| format!("{place}: {error}");
        let plain = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|value| value.starts_with("http://")));
        let store = AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(plain).build();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| said(&error))?;
        Ok(Self::Bucket(Bucket {
            runtime,
            store: Arc::new(store.map_err(|error| said(&error))?),
            prefix: Key::from(prefix),
        }))
    }

    /// The names of the files that lie in a folder of the lake, those of files in its folders left out. No folder, no file.
    pub(crate) fn files(&self, folder: &str) -> Result<Vec<String>, String> {
        Ok(self.listed(folder)?.1)
    }

    /// The names of the folders in a folder of the lake.
    pub(crate) fn folders(&self, folder: &str) -> Result<Vec<String>, String> {
        Ok(self.listed(folder)?.0)
    }

    fn listed(&self, folder: &str) -> Result<(Vec<String>, Vec<String>), String> {
        let (mut folders, mut files) = (Vec::new(), Vec::new());
        match self {
            Self::Folder(root) => {
                let place = root.join(folder);
                let said = |error: io::Error| format!("{}: {error}", place.display());
                let entries = match fs::read_dir(&place) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((folders, files)),
                    other => other.map_err(said)?,
                };
                for entry in entries {
                    let entry = entry.map_err(said)?;
                    let Ok(name) = entry.file_name().into_string() else { continue };
                    // Drafts begin with a dot.
                    if !name.starts_with('.') {
                        let is_folder = entry.file_type().map_err(said)?.is_dir();
                        if is_folder { &mut folders } else { &mut files }.push(name);
                    }
                }
            }
            Self::Bucket(bucket) => {
                let place = bucket.key(folder);
                let found = bucket.runtime.block_on(bucket.store.list_with_delimiter(Some(&place)));
                let found = found.map_err(|error| format!("{place}: {error}"))?;
                let name = |key: &Key| key.filename().map(str::to_owned);
                folders.extend(found.common_prefixes.iter().filter_map(name));
                files.extend(found.objects.iter().filter_map(|object| name(&object.location)));
            }
        }
        folders.sort();
        files.sort();
        Ok((folders, files))
    }

    /// A whole file; none where another has removed it.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Bytes>, String> {
        match self {
            Self::Folder(root) => match fs::read(root.join(name)) {
                Ok(content) => Ok(Some(content.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(format!("{}: {error}", root.join(name).display())),
            },
            Self::Bucket(bucket) => {
                let key = bucket.key(name);
                let read = async { bucket.store.get(&key).await?.bytes().await };
                match bucket.runtime.block_on(read) {
                    Ok(content) => Ok(Some(content)),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(format!("{key}: {error}")),
                }
            }
        }
    }

    /// Stores a file. Who stores the same file at the same time stores the same bytes.
    pub(crate) fn put(&self, name: &str, content: Vec<u8>) -> Result<(), String> {
        match self {
            Self::Folder(root) => {
                let place = root.join(name);
                put(root, &place, &content).map_err(|error| format!("{}: {error}", place.display()))
            }
            Self::Bucket(bucket) => {
                let key = bucket.key(name);
                let done = bucket.runtime.block_on(bucket.store.put(&key, content.into()));
                done.map(drop).map_err(|error| format!("{key}: {error}"))
            }
        }
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), String> {
        match self {
            Self::Folder(root) => match fs::remove_file(root.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(format!("{}: {error}", root.join(name).display()))
                }
                _ => Ok(()),
            },
            Self::Bucket(bucket) => {
                let key = bucket.key(name);
                match bucket.runtime.block_on(bucket.store.delete(&key)) {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(format!("{key}: {error}")),
                }
            }
        }
    }
}

impl Bucket {
    fn key(&self, name: &str) -> Key {
        Key::from(format!("{}/{name}", self.prefix))
    }
}

/// Writes beside the place and renames. Folders that are made for it are open to whom the lake's folder is open.
fn put(root: &Path, place: &Path, content: &[u8]) -> io::Result<()> {
    let folder = place.parent().unwrap_or(root);
    if !root.is_dir() {
        fs::create_dir_all(root)?;
    }
    let mode = fs::metadata(root)?.permissions().mode() & 0o7777;
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.is_dir()).collect();
    for folder in missing.into_iter().rev() {
        match fs::create_dir(folder) {
            Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(mode))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    // No other writer has this name, on whatever machine; a link is not followed.
    let draft = folder.join(format!(".{name}.{}-{moment:x}.part", std::process::id()));
    let done = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, place)
    })();
    if done.is_err() {
        let _ = fs::remove_file(&draft);
    }
    done
}
