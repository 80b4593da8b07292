//! Deep verification (section 12).

use crate::dtype::Dtype;
use crate::error::{ensure, Code::*, Result};
use crate::file::{File, RECORD};

impl File {
    /// Level *deep*, for a file at rest. It may read the whole file.
    pub fn verify(&self) -> Result<()> {
        self.check_padding()?;
        self.check_bools()
    }

    /// PAD-1: a walk over all owned ranges in the order of their starts; what lies between the
    /// furthest end so far and the next start belongs to nobody.
    fn check_padding(&self) -> Result<()> {
        let h = &self.header;
        let mut owned = Vec::with_capacity(3 * self.len() + 3);
        owned.extend([(0, 64), (h.meta_offset, RECORD * h.count), (h.end, 8)]);
        for record in &self.records {
            owned.push((record.name_offset, record.name_size + 1));
            owned.push((record.shape_offset, 8 * record.rank));
            owned.push((record.data_offset, record.data_size));
        }
        // A range without bytes owns nothing, and must not count as a start.
        owned.retain(|&(_, size)| size > 0);
        owned.sort_unstable();
        let mut covered = 0;
        for (start, size) in owned {
            if start > covered {
                let gap = self.storage.span(covered, start - covered);
                let found = gap.iter().position(|&byte| byte != 0);
                let at = covered + found.unwrap_or(0) as u64;
                ensure(found.is_none(), NonzeroPadding, "PAD-1", "padding", at)?;
            }
            covered = covered.max(start + size);
        }
        Ok(())
    }

    /// BOOL-1. Aliases are neighbours in `by_data` and are looked at once: a thousand names for
    /// one tensor must not cost a thousand passes.
    fn check_bools(&self) -> Result<()> {
        let mut last = None;
        for &index in &self.by_data {
            let record = &self.records[index];
            if record.dtype != Dtype::BOOL || last == Some(record.place()) {
                continue;
            }
            last = Some(record.place());
            let bytes = self.storage.span(record.data_offset, record.data_size);
            let wrong = bytes.iter().find(|&&byte| byte > 1);
            ensure(wrong.is_none(), BadBool, "BOOL-1", "data", wrong.unwrap_or(&0))
                .map_err(|error| error.in_record(index))?;
        }
        Ok(())
    }
}
