//! Kernel modules for an initramfs: what is asked for and what that depends on, in loading order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The modules of one kernel, by the name `modprobe` knows.
#[derive(Debug)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

fn module_name(path: &Path) -> Option<String> {
    Some(
        path.file_name()?
            .to_str()?
            .strip_suffix(".ko")?
            .replace('-', "_"),
    )
}

impl Modules {
    /// Looks at the module directory of a kernel.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(directory: &Path) -> anyhow::Result<Self> {
        let list = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
        };
        let files = list("modules.order")?
            .lines()
            .filter_map(|line| Some((module_name(Path::new(line))?, directory.join(line))))
            .collect();
        let built_in = list("modules.builtin")?
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self { files, built_in })
    }

    /// The files of `wanted` and of all they need, each after what it needs. Modules that are built
    /// into the kernel are left out.
    ///
    /// # Errors
    /// When a module is neither a file nor built in.
    pub fn loading_order(&self, wanted: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            self.visit(&name.replace('-', "_"), &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<PathBuf>,
    ) -> anyhow::Result<()> {
        if self.built_in.contains(name) || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let file = self
            .files
            .get(name)
            .with_context(|| format!("the kernel has no module {name}"))?;
        for needed in depends(&fs::read(file)?) {
            self.visit(&needed, seen, order)?;
        }
        order.push(file.clone());
        Ok(())
    }
}

/// What a module says in its `.modinfo` section that it depends on.
fn depends(module: &[u8]) -> Vec<String> {
    const TAG: &[u8] = b"\0depends=";
    let Some(start) = module.windows(TAG.len()).position(|window| window == TAG) else {
        return Vec::new();
    };
    let rest = &module[start + TAG.len()..];
    let value = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::depends;

    #[test]
    fn dependencies_are_read_from_modinfo() {
        assert_eq!(
            depends(b"x\0license=GPL\0depends=virtio,net-failover\0name=virtio_net\0"),
            ["virtio", "net_failover"]
        );
        assert!(depends(b"\0depends=\0").is_empty());
        assert!(depends(b"no section").is_empty());
    }
}
