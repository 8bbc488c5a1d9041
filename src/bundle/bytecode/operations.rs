//! Operations, as far as they show without their dialects: names, nesting, and that every index is one.

use super::cursor::{Cursor, Result, Stop};
use super::error::{Fault, Part};
use serde::Serialize;
use std::collections::BTreeMap;

/// Deepest nesting that is read; what Core AI writes has four levels.
const NESTING_MAX: usize = 64;
/// Level of functions (a module is level 0), and that of the operations they consist of.
const FUNCTION: usize = 1;
const BODY: usize = 2;

/// A function and its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Function {
    /// The operation that is the function.
    pub kind: String,
    /// Operations of each name that it consists of.
    pub ops: BTreeMap<String, usize>,
    /// The same of those within its operations, which say what these mean in simpler ones.
    pub nested: BTreeMap<String, usize>,
}

/// How much there is to name.
pub(super) struct Counts {
    pub attributes: u64,
    pub types: u64,
    pub properties: u64,
}

/// What an operation has.
mod marks {
    pub(super) const ATTRIBUTES: u8 = 1;
    pub(super) const RESULTS: u8 = 1 << 1;
    pub(super) const OPERANDS: u8 = 1 << 2;
    pub(super) const SUCCESSORS: u8 = 1 << 3;
    pub(super) const REGIONS: u8 = 1 << 4;
    pub(super) const USE_ORDER: u8 = 1 << 5;
    pub(super) const PROPERTIES: u8 = 1 << 6;
    pub(super) const ALL: u8 = (1 << 7) - 1;
}

/// Walks the operation section and gives the functions of the module, in order.
pub(super) fn functions(mut cursor: Cursor<'_>, names: &[String], counts: &Counts) -> Result<Vec<Function>> {
    let mut walk = Walk { names, counts, found: Vec::new() };
    walk.block(&mut cursor, 0)?;
    cursor.done()?;
    let name = |at: usize| names.get(at).cloned().unwrap_or_default();
    let named = |census: Census| census.into_iter().map(|(at, n)| (name(at), n)).collect();
    let function = |(kind, ops, nested)| Function { kind: name(kind), ops: named(ops), nested: named(nested) };
    Ok(walk.found.into_iter().map(function).collect())
}

/// How many operations there are of each name, by its number.
type Census = BTreeMap<usize, usize>;

struct Walk<'n> {
    names: &'n [String],
    counts: &'n Counts,
    found: Vec<(usize, Census, Census)>,
}

impl Walk<'_> {
    fn block(&mut self, cursor: &mut Cursor<'_>, level: usize) -> Result<()> {
        if level > NESTING_MAX {
            return cursor.fail(Fault::Nesting { most: NESTING_MAX });
        }
        let at = cursor.at();
        let (operations, arguments) = cursor.flagged()?;
        // Name, marks and location are a byte each at least.
        cursor.fits(at, "operations", operations, 3)?;
        if arguments {
            self.arguments(cursor)?;
        }
        (0..operations).try_for_each(|_| self.operation(cursor, level))
    }

    fn arguments(&self, cursor: &mut Cursor<'_>) -> Result<()> {
        let count = cursor.count("block arguments", 1)?;
        for _ in 0..count {
            let (_, located) = cursor.flagged_index("type", self.counts.types)?;
            if located {
                cursor.index("attribute", self.counts.attributes)?;
            }
        }
        if cursor.byte()? == 0 { Ok(()) } else { use_orders(cursor, count) }
    }

    fn operation(&mut self, cursor: &mut Cursor<'_>, level: usize) -> Result<()> {
        let name = cursor.index("operation name", self.names.len() as u64)? as usize;
        self.count(name, level);
        let (at, has) = (cursor.at(), cursor.byte()?);
        if has & !marks::ALL != 0 {
            return Err(Stop::At(at, Fault::Marks { found: has }));
        }
        let with = |mark| has & mark != 0;
        cursor.index("location", self.counts.attributes)?;
        if with(marks::ATTRIBUTES) {
            cursor.index("attribute", self.counts.attributes)?;
        }
        if with(marks::PROPERTIES) {
            cursor.index("property", self.counts.properties)?;
        }
        let mut results = 0;
        if with(marks::RESULTS) {
            results = cursor.count("results", 1)?;
            for _ in 0..results {
                cursor.index("type", self.counts.types)?;
            }
        }
        for (mark, what) in [(marks::OPERANDS, "operands"), (marks::SUCCESSORS, "successors")] {
            if with(mark) {
                let count = cursor.count(what, 1)?;
                (0..count).try_for_each(|_| cursor.number().map(drop))?;
            }
        }
        if with(marks::USE_ORDER) {
            use_orders(cursor, results)?;
        }
        if with(marks::REGIONS) { self.regions(cursor, level + 1) } else { Ok(()) }
    }

    fn count(&mut self, name: usize, level: usize) {
        if level == FUNCTION {
            self.found.push((name, Census::new(), Census::new()));
        }
        if let (true, Some((_, ops, nested))) = (level >= BODY, self.found.last_mut()) {
            *if level == BODY { ops } else { nested }.entry(name).or_default() += 1;
        }
    }

    /// The regions of an operation; those that see nothing of their surroundings are a section of their own.
    fn regions(&mut self, cursor: &mut Cursor<'_>, level: usize) -> Result<()> {
        let at = cursor.at();
        let (regions, isolated) = cursor.flagged()?;
        if !isolated {
            cursor.fits(at, "regions", regions, 1)?;
            return (0..regions).try_for_each(|_| self.region(cursor, level));
        }
        let mut inside = cursor.section(Part::Operations, Part::Operations.name())?;
        inside.fits(at, "regions", regions, 1)?;
        (0..regions).try_for_each(|_| self.region(&mut inside, level))?;
        inside.done()
    }

    fn region(&mut self, cursor: &mut Cursor<'_>, level: usize) -> Result<()> {
        let blocks = cursor.count("blocks", 1)?;
        if blocks > 0 {
            let _values = cursor.number()?;
        }
        (0..blocks).try_for_each(|_| self.block(cursor, level))
    }
}

/// The order of the uses of some of `values` values, which a single one need not name.
fn use_orders(cursor: &mut Cursor<'_>, values: u64) -> Result<()> {
    let several = values > 1;
    let ordered = if several { cursor.count("use orders", 1)? } else { 1 };
    for _ in 0..ordered {
        if several {
            cursor.index("value", values)?;
        }
        let at = cursor.at();
        let (uses, _pairs) = cursor.flagged()?;
        cursor.fits(at, "uses", uses, 1)?;
        (0..uses).try_for_each(|_| cursor.number().map(drop))?;
    }
    Ok(())
}
