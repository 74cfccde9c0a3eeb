//! Which files of the node are firmware.
//!
//! What the configuration names; else the first that suits of what packages describe; else, for BIOS,
//! where distributions put SeaBIOS, which few describe. Looked for anew each time: what is installed
//! later is found.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_domain::{Lack, MissingFirmware};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::descriptor::{Descriptor, Descriptors, Files, Interface};
use super::image::{MIN_CODE_BYTES, PAGE_BYTES, image_bytes};

/// Where distributions put SeaBIOS.
const SEABIOS: [&str; 2] = [
    "usr/share/seabios/bios-256k.bin",
    "usr/share/qemu/bios-256k.bin",
];

/// What the configuration says of firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirmwareSettings {
    /// Setting `firmware.bios`: image of SeaBIOS.
    pub bios: Option<PathBuf>,
    /// Setting `firmware.efi`: image of OVMF without secure boot, with the template of its variables
    /// (`firmware.efi_variables`).
    pub efi: Option<EfiFiles>,
    /// The file that these settings are in, for messages.
    pub origin: String,
}

/// Files of UEFI firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EfiFiles {
    /// The image that runs.
    pub code: PathBuf,
    /// What its variables are at first.
    pub variables: PathBuf,
}

/// Finds firmware.
#[derive(Clone, Debug)]
pub struct FirmwareFinder {
    root: PathBuf,
    settings: FirmwareSettings,
    known: Arc<Mutex<Known>>,
}

/// What was found last.
#[derive(Debug, Default)]
struct Known {
    last: MissingFirmware,
    /// A thread is looking: its file system may never answer.
    is_asked: bool,
}

/// How long admission waits for the file systems with firmware.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the lock guards is whole at any time.
fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits in place. The runtime's other tasks go on meanwhile, also those that this thread was to carry next.
fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let is_shared = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(is_shared) {
        return tokio::task::block_in_place(wait);
    }
    wait()
}

impl FirmwareFinder {
    /// For this node.
    #[must_use]
    pub fn new(settings: FirmwareSettings) -> Self {
        Self::below(Path::new("/"), settings)
    }

    /// For files below `root`, but for those of the settings.
    pub(super) fn below(root: &Path, settings: FirmwareSettings) -> Self {
        let root = root.to_owned();
        Self {
            root,
            settings,
            known: Arc::default(),
        }
    }

    /// Where firmware is looked for first.
    pub(crate) fn place(&self) -> &Path {
        let efi = self.settings.efi.as_ref().map(|files| files.code.as_path());
        let configured = self.settings.bios.as_deref().or(efi);
        configured.unwrap_or(Path::new("/usr/share"))
    }

    /// What is missing, within a second. While a file system does not answer nobody can tell: then what was found last
    /// holds, and nothing is missing where nothing was found yet. Only the first who asks waits, and no other task of the
    /// runtime does.
    #[must_use]
    pub fn lacks(&self) -> MissingFirmware {
        let finder = self.clone();
        self.lacks_by(move || finder.inspect())
    }

    fn lacks_by(
        &self,
        inspect: impl FnOnce() -> MissingFirmware + Send + 'static,
    ) -> MissingFirmware {
        let known = || lock(&self.known).last.clone();
        if std::mem::replace(&mut lock(&self.known).is_asked, true) {
            return known();
        }
        let (sender, found) = std::sync::mpsc::channel();
        let present = Arc::clone(&self.known);
        let asked = std::thread::Builder::new().spawn(move || {
            let lacks = inspect();
            *lock(&present) = Known {
                last: lacks.clone(),
                is_asked: false,
            };
            // Whoever has waited for too long is gone.
            drop(sender.send(lacks));
        });
        if let Err(error) = asked {
            tracing::warn!(%error, "firmware is not searched for");
            lock(&self.known).is_asked = false;
            return known();
        }
        waiting(|| found.recv_timeout(PATIENCE)).unwrap_or_else(|_| {
            tracing::warn!("the file systems with firmware do not answer");
            known()
        })
    }

    fn inspect(&self) -> MissingFirmware {
        MissingFirmware {
            bios: self.bios().err(),
            efi: self.efi().err(),
        }
    }

    /// The image of BIOS.
    ///
    /// # Errors
    /// When there is none that can be used.
    pub fn bios(&self) -> Result<PathBuf, Lack> {
        let descriptors = Descriptors::read(&self.root);
        if let Some(path) = &self.settings.bios {
            return self.configured("firmware.bios", path, MIN_CODE_BYTES, &descriptors);
        }
        let described = descriptors.found.iter();
        let described = described.filter_map(|one| one.suits(Interface::Bios));
        let known = SEABIOS.iter().map(|path| Files {
            code: self.root.join(path),
            variables: None,
        });
        let mut wrong = Vec::new();
        let found = described
            .chain(known)
            .find(|files| is_usable(files, &mut wrong));
        found
            .map(|files| files.code)
            .ok_or_else(|| self.lack("BIOS", wrong, descriptors, "seabios", "firmware.bios"))
    }

    /// The files of UEFI.
    ///
    /// # Errors
    /// When there are none that can be used.
    pub fn efi(&self) -> Result<EfiFiles, Lack> {
        let descriptors = Descriptors::read(&self.root);
        if let Some(files) = &self.settings.efi {
            let EfiFiles { code, variables } = files;
            let setting = "firmware.efi_variables";
            self.configured(setting, variables, PAGE_BYTES, &descriptors)?;
            self.configured("firmware.efi", code, MIN_CODE_BYTES, &descriptors)?;
            return Ok(files.clone());
        }
        let mut wrong = Vec::new();
        let described = descriptors.found.iter();
        let found = described
            .filter_map(|one| one.suits(Interface::Uefi))
            .find(|files| is_usable(files, &mut wrong));
        let files = found.and_then(|files| {
            Some(EfiFiles {
                code: files.code,
                variables: files.variables?,
            })
        });
        let settings = "firmware.efi and firmware.efi_variables";
        let what = "UEFI without secure boot";
        files.ok_or_else(|| self.lack(what, wrong, descriptors, "ovmf", settings))
    }

    /// A path of the configuration, which is not exchanged for another.
    fn configured(
        &self,
        setting: &str,
        path: &Path,
        least: u64,
        descriptors: &Descriptors,
    ) -> Result<PathBuf, Lack> {
        let secure = || descriptors.found.iter().any(|one| is_secure(one, path));
        let wrong = match image_bytes(path, least) {
            Err(wrong) => wrong,
            Ok(_) if secure() => {
                "is firmware with secure boot, which needs system management mode".to_owned()
            }
            Ok(_) => return Ok(path.to_owned()),
        };
        let origin = &self.settings.origin;
        Err(Lack {
            why: format!("{} {wrong}", path.display()),
            way_out: format!(
                "it is the setting {setting} in {origin}: name another file there, or none"
            ),
        })
    }

    fn lack(
        &self,
        what: &str,
        wrong: Vec<String>,
        descriptors: Descriptors,
        package: &str,
        setting: &str,
    ) -> Lack {
        let mut reasons = wrong;
        reasons.extend(descriptors.unread);
        if reasons.is_empty() {
            reasons.push("nothing in /usr/share/qemu/firmware describes it".to_owned());
        }
        let origin = &self.settings.origin;
        Lack {
            why: format!("there is no {what} on this node: {}", reasons.join("; ")),
            way_out: format!("apt install {package}, or set {setting} in {origin}"),
        }
    }
}

/// Whether a descriptor says of this file that it is not to be loaded.
fn is_secure(descriptor: &Descriptor, path: &Path) -> bool {
    let place = |path: &Path| path.canonicalize().ok();
    let is_it = || {
        descriptor
            .code()
            .is_some_and(|code| place(code) == place(path))
    };
    descriptor.is_secure() && is_it()
}

fn is_usable(files: &Files, wrong: &mut Vec<String>) -> bool {
    let code = (&files.code, MIN_CODE_BYTES);
    let variables = files.variables.as_ref().map(|path| (path, PAGE_BYTES));
    for (path, least) in [Some(code), variables].into_iter().flatten() {
        if let Err(why) = image_bytes(path, least) {
            wrong.push(format!("{} {why}", path.display()));
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn image(&self, name: &str, bytes: usize) -> PathBuf {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![0; bytes]).unwrap();
            path
        }

        /// A descriptor in a directory, of an image that is there.
        fn describe(&self, directory: &str, name: &str, features: &[&str]) -> EfiFiles {
            let stem = format!("{}-{name}", directory.replace('/', "-"));
            let code = self.image(&format!("{stem}-code.fd"), 1 << 20);
            let variables = self.image(&format!("{stem}-vars.fd"), 8192);
            let descriptor = json!({
                "interface-types": ["uefi"],
                "mapping": {
                    "device": "flash",
                    "executable": {"filename": code, "format": "raw"},
                    "nvram-template": {"filename": variables, "format": "raw"},
                },
                "targets": [{"architecture": "x86_64", "machines": ["pc-q35-*"]}],
                "features": features,
            });
            self.file(directory, name, &descriptor.to_string());
            EfiFiles { code, variables }
        }

        fn file(&self, directory: &str, name: &str, text: &str) {
            let directory = self.0.path().join(directory);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(name), text).unwrap();
        }

        fn finder(&self, settings: FirmwareSettings) -> FirmwareFinder {
            FirmwareFinder::below(self.0.path(), settings)
        }

        fn efi(&self) -> Result<EfiFiles, Lack> {
            self.finder(FirmwareSettings::default()).efi()
        }
    }

    const PACKAGES: &str = "usr/share/qemu/firmware";
    const OPERATOR: &str = "etc/qemu/firmware";

    #[test]
    fn other_tasks_go_on_while_one_waits_for_a_file_system() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (answer, answered) = std::sync::mpsc::channel();
        let finder = Node::new().finder(FirmwareSettings::default());
        let bios = Some(Lack {
            why: String::from("the file system has answered"),
            way_out: String::new(),
        });
        let found = MissingFirmware { bios, efi: None };
        let wanted = found.clone();
        let lacks = runtime.block_on(async move {
            let waits = tokio::spawn(async move {
                // The only thread of the runtime carries this task, and would carry the next when it has ended.
                tokio::spawn(async move { answer.send(()) });
                finder.lacks_by(move || {
                    answered
                        .recv()
                        .map_or_else(|_| MissingFirmware::default(), |()| found)
                })
            });
            waits.await.unwrap()
        });
        assert_eq!(lacks, wanted, "not what was known before");
    }

    #[test]
    fn the_first_that_suits_is_taken_and_the_operators_files_hide_the_packages() {
        let node = Node::new();
        let lack = node.efi().unwrap_err();
        assert!(
            lack.way_out
                .starts_with("apt install ovmf, or set firmware.efi"),
            "{lack:?}"
        );
        node.describe(
            PACKAGES,
            "40-enrolled.json",
            &["requires-smm", "secure-boot", "enrolled-keys"],
        );
        assert!(node.efi().is_err());
        let plain = node.describe(PACKAGES, "60-plain.json", &["acpi-s3"]);
        assert_eq!(node.efi().unwrap(), plain);
        let sooner = node.describe(OPERATOR, "50-mine.json", &[]);
        assert_eq!(node.efi().unwrap(), sooner);
        node.file(OPERATOR, "50-mine.json", "");
        assert_eq!(node.efi().unwrap(), plain);
        node.file(OPERATOR, "60-plain.json", "");
        assert!(node.efi().is_err());
    }

    #[test]
    fn a_described_image_that_is_not_there_is_said_and_the_next_is_tried() {
        let node = Node::new();
        let gone = node.describe(PACKAGES, "10-gone.json", &[]);
        fs::remove_file(&gone.variables).unwrap();
        let lack = node.efi().unwrap_err();
        assert!(lack.why.contains("-vars.fd is missing"), "{lack:?}");
        let odd = node.describe(PACKAGES, "20-odd.json", &[]);
        fs::write(&odd.code, "short").unwrap();
        let lack = node.efi().unwrap_err();
        assert!(lack.why.contains("has 5 bytes and is no image"), "{lack:?}");
        let next = node.describe(PACKAGES, "30-next.json", &[]);
        assert_eq!(node.efi().unwrap(), next);
    }

    #[test]
    fn bios_is_where_distributions_put_it_unless_it_is_said_otherwise() {
        let node = Node::new();
        let bios = |settings| node.finder(settings).bios();
        let lack = bios(FirmwareSettings::default()).unwrap_err();
        assert!(
            lack.why
                .contains("usr/share/seabios/bios-256k.bin is missing"),
            "{lack:?}"
        );
        let found = node.image("usr/share/seabios/bios-256k.bin", 256 << 10);
        assert_eq!(bios(FirmwareSettings::default()).unwrap(), found);
        let mine = node.image("mine.bin", 128 << 10);
        let settings = FirmwareSettings {
            bios: Some(mine.clone()),
            origin: "kvmlet.toml".to_owned(),
            ..FirmwareSettings::default()
        };
        assert_eq!(bios(settings.clone()).unwrap(), mine);
        fs::remove_file(mine).unwrap();
        let lack = bios(settings).unwrap_err();
        assert!(lack.why.ends_with("mine.bin is missing"), "{lack:?}");
        assert!(
            lack.way_out.contains("firmware.bios in kvmlet.toml"),
            "{lack:?}"
        );
    }

    #[test]
    fn secure_firmware_is_not_loaded_even_when_it_is_configured_by_another_name() {
        let node = Node::new();
        let secure = node.describe(PACKAGES, "40-secure.json", &["requires-smm"]);
        let link = node.0.path().join("link.fd");
        std::os::unix::fs::symlink(&secure.code, &link).unwrap();
        let files = EfiFiles {
            code: link,
            ..secure
        };
        let settings = FirmwareSettings {
            efi: Some(files),
            ..FirmwareSettings::default()
        };
        let lack = node.finder(settings).efi().unwrap_err();
        assert!(lack.why.contains("secure boot"), "{lack:?}");
    }
}
