//! A file system that forgets what was not synchronised, and fails when it is told to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::super::Files;

/// A file's bytes.
#[derive(Debug, Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    is_synced: bool,
}

/// A change of names that a crash may take back; `None` takes the name away.
type Naming = (String, Option<usize>);

#[derive(Debug, Default)]
struct Inside {
    contents: Vec<Content>,
    /// Names as programs see them.
    names: BTreeMap<String, usize>,
    /// Names on the disk.
    on_disk: BTreeMap<String, usize>,
    /// Changes since the directory was synchronised.
    pending: Vec<Naming>,
}

/// The file system; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    inside: Rc<RefCell<Inside>>,
    /// Number of operations that still succeed; `None`: all.
    left: Rc<Cell<Option<usize>>>,
    /// `true` if all further operations fail, as after a crash; `false` if only one does.
    for_good: Rc<Cell<bool>>,
    /// Operations that were tried.
    tried: Rc<Cell<usize>>,
}

impl Disk {
    /// Lets `operations` succeed. The next fails, and all after it if that is to be a crash.
    pub(super) fn fail_after(&self, operations: usize, crash: bool) {
        self.left.set(Some(operations));
        self.for_good.set(crash);
        self.tried.set(0);
    }

    /// Lets everything succeed again.
    pub(super) fn heal(&self) {
        self.left.set(None);
    }

    /// Number of operations since [`fail_after`](Self::fail_after).
    pub(super) fn tried(&self) -> usize {
        self.tried.get()
    }

    /// The machine loses its power. Of what was not synchronised, `luck` says what is lost: a bit
    /// for each change of a name, and how much of each file.
    pub(super) fn crash(&self, luck: u64) {
        self.heal();
        let mut inside = self.inside.borrow_mut();
        let pending = std::mem::take(&mut inside.pending);
        let mut names = inside.on_disk.clone();
        for (i, (name, content)) in pending.into_iter().enumerate() {
            let kept = luck >> (i % 32) & 1 == 1;
            match content {
                Some(content) if kept => drop(names.insert(name, content)),
                None if kept => drop(names.remove(&name)),
                _ => {}
            }
        }
        for content in &mut inside.contents {
            if !content.is_synced {
                let kept = content.bytes.len() as u64 * (luck >> 32 & 0xff) / 256;
                content.bytes.truncate(kept as usize);
                content.is_synced = true;
            }
        }
        inside.on_disk = names.clone();
        inside.names = names;
    }

    /// Puts bytes in a file, durably.
    pub(super) fn data_plane(&self, name: &str, bytes: &[u8]) {
        self.write(name, bytes).unwrap();
        self.sync(name).unwrap();
        self.sync_directory().unwrap();
    }

    fn operation(&self) -> io::Result<()> {
        self.tried.set(self.tried.get() + 1);
        match self.left.get() {
            None => Ok(()),
            Some(0) => {
                if !self.for_good.get() {
                    self.left.set(None);
                }
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(left) => {
                self.left.set(Some(left - 1));
                Ok(())
            }
        }
    }

    fn name(&self, name: &str, content: Option<usize>) {
        let mut inside = self.inside.borrow_mut();
        match content {
            Some(content) => drop(inside.names.insert(name.to_owned(), content)),
            None => drop(inside.names.remove(name)),
        }
        inside.pending.push((name.to_owned(), content));
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        let found = self.inside.borrow().names.get(name).copied();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for Disk {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.find(name).ok().map(|at| self.inside.borrow().contents[at].bytes.clone()))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let failed = self.operation();
        // A write that fails may have begun.
        let kept = if failed.is_ok() { bytes.len() } else { bytes.len() / 2 };
        let content = Content { bytes: bytes[..kept].to_vec(), is_synced: false };
        let at = {
            let mut inside = self.inside.borrow_mut();
            inside.contents.push(content);
            inside.contents.len() - 1
        };
        self.name(name, Some(at));
        failed
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.operation()?;
        let at = self.find(name)?;
        self.inside.borrow_mut().contents[at].is_synced = true;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.operation()?;
        let at = self.find(from)?;
        self.name(to, Some(at));
        self.name(from, None);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.operation()?;
        if self.find(name).is_ok() {
            self.name(name, None);
        }
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.operation()?;
        let mut inside = self.inside.borrow_mut();
        inside.pending.clear();
        inside.on_disk = inside.names.clone();
        Ok(())
    }

    fn shown(&self, name: &str) -> String {
        format!("DIR/{name}")
    }
}
