//! From the text of an answer to rows: one pass, and nothing is made for a row but the row.

use super::{
    Inventory, ResourceKind,
    columns::{self, Column, Span},
};
use crate::{
    ids::{NodeName, StorageId, Vmid},
    wire::{ENTRIES_CAP, Scan, ScanError},
};

/// An entry: where its columns are in the text, and what was found out about them.
#[derive(Debug)]
pub(super) struct Row {
    columns: [Span; Column::COUNT],
    /// The guest's number, 0 where there is none.
    vmid: u32,
}

/// Why a body is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(transparent)]
    Json(#[from] ScanError),
    #[error("the body is not a JSON object")]
    NoObject,
    #[error("`data` is missing")]
    NoData,
    #[error("`data` is not a list")]
    NoList,
}

impl Row {
    /// The JSON of a column; `None` where the entry does not have it.
    pub(super) fn json<'a>(&self, column: Column, text: &'a str) -> Option<&'a str> {
        self.columns.get(column as usize)?.json(text)
    }

    pub(super) fn vmid(&self) -> Option<Vmid> {
        Vmid::new(self.vmid).ok()
    }

    /// Checks what identifies the entry, as its kind demands.
    fn identify(&mut self, text: &str) -> Option<ResourceKind> {
        let filled = |column| {
            let text = columns::text(self.json(column, text)?);
            text.value().filter(|text| !text.is_empty()).cloned()
        };
        let kind = ResourceKind::read(&filled(Column::Type)?);
        let has_node = || filled(Column::Node).is_some_and(|node| NodeName::is_valid(&node));
        let identified = match kind {
            ResourceKind::Qemu | ResourceKind::Lxc => {
                let vmid = filled(Column::Vmid)?.parse::<Vmid>().ok()?;
                let has_node = has_node();
                self.vmid = vmid.get();
                has_node
            }
            ResourceKind::Node => has_node(),
            ResourceKind::Storage => {
                has_node() && filled(Column::Storage).is_some_and(|id| id.parse::<StorageId>().is_ok())
            }
            _ => true,
        };
        identified.then_some(kind)
    }
}

/// Reads `{"data": […]}`.
pub(super) fn read(text: String) -> Result<Inventory, Problem> {
    let mut scan = Scan::new(&text);
    if scan.peek()? != b'{' {
        scan.skip()?;
        return Err(Problem::NoObject);
    }
    let mut data = Err(Problem::NoData);
    scan.object(|scan, key| {
        let key = text.get(key).unwrap_or_default();
        let is_data = key == "\"data\""
            || key.contains('\\') && serde_json::from_str::<String>(key).is_ok_and(|key| key == "data");
        match (is_data, scan.peek()?) {
            // Of a repeated key the last one counts, as in Perl.
            (true, b'[') => data = Ok(list(scan, &text)?),
            (true, _) => {
                scan.skip()?;
                data = Err(Problem::NoList);
            }
            (false, _) => {
                scan.skip()?;
            }
        }
        Ok(())
    })?;
    scan.end()?;
    let Rows { rows, mut guests, nodes, skipped } = data?;
    guests.sort_unstable();
    if skipped > 0 {
        tracing::warn!(skipped, "entries of /cluster/resources could not be read");
    }
    Ok(Inventory { text, rows, guests, nodes, skipped })
}

#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    guests: Vec<(u32, u32)>,
    nodes: Vec<u32>,
    skipped: usize,
}

fn list(scan: &mut Scan<'_>, text: &str) -> Result<Rows, ScanError> {
    let mut list = Rows::default();
    scan.array(|scan| {
        if list.rows.len() + list.skipped == ENTRIES_CAP {
            return Err(ScanError::Entries);
        }
        if scan.peek()? != b'{' {
            scan.skip()?;
            list.skipped += 1;
            return Ok(());
        }
        let mut row = Row { columns: [Span::default(); Column::COUNT], vmid: 0 };
        scan.object(|scan, key| {
            let column = text.get(key).and_then(Column::of_key);
            let value = scan.skip()?;
            if let Some(place) = column.and_then(|column| row.columns.get_mut(column as usize)) {
                *place = Span::of(&value).unwrap_or_default();
            }
            Ok(())
        })?;
        // An answer has at most 16 MiB, so the number of rows is far from 2^32.
        match (row.identify(text), u32::try_from(list.rows.len())) {
            (Some(kind), Ok(at)) => {
                match kind {
                    ResourceKind::Qemu | ResourceKind::Lxc => list.guests.push((row.vmid, at)),
                    ResourceKind::Node => list.nodes.push(at),
                    _ => {}
                }
                list.rows.push(row);
            }
            _ => list.skipped += 1,
        }
        Ok(())
    })?;
    Ok(list)
}
