//! The numbered blocks of `testguest` on a disk.

use crate::volatile_disk::{Content, SECTOR_BYTES};

/// Size of a block.
pub(super) const BLOCK_BYTES: u64 = 4096;
const SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;
const WORDS_IN_A_SECTOR: u64 = SECTOR_BYTES / 8;

/// `testguest` multiplies by it, which makes no two words alike.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Undoes the multiplication.
const UNMIX: u64 = inverse(MIX);

/// What was found of the blocks that were acknowledged and not overwritten by other acknowledged ones.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub found: u64,
    pub lost: u64,
    /// The first that is lost, and what stands in its place; empty when there is none.
    pub first_lost: String,
}

/// Looks for all blocks up to number `kept` that the guest was promised on a disk of `places` blocks.
///
/// Block N is at place N modulo `places`. While a later block is written to a place, the power may go in the middle of
/// it: sectors of it are as good as those of the acknowledged one.
pub(super) fn scan_blocks(
    content: &Content,
    places: u64,
    kept: u64,
    was_promised: impl Fn(u64) -> bool,
) -> Blocks {
    let mut blocks = Blocks::default();
    let numbers = (kept + 1).saturating_sub(places).max(1)..=kept;
    for number in numbers.filter(|number| was_promised(*number)) {
        let place = number % places;
        let wrong = (0..SECTORS).find_map(|index| {
            let sector = content.sector(place * SECTORS + index);
            let found = number_of(&sector, index);
            let is_good = found
                .is_some_and(|found| found >= number && (found - number).is_multiple_of(places));
            (!is_good).then_some((index, found))
        });
        match wrong {
            None => blocks.found += 1,
            Some((index, found)) => {
                if blocks.lost == 0 {
                    let stands = found.map_or_else(
                        || "none of any block".to_owned(),
                        |found| format!("that of block {found}"),
                    );
                    blocks.first_lost =
                        format!("block {number}: in the place of sector {index} is {stands}");
                }
                blocks.lost += 1;
            }
        }
    }
    blocks
}

/// The number of the block that a sector is of, when it is sector `index` of one.
fn number_of(sector: &[u8], index: u64) -> Option<u64> {
    let (words, _) = sector.as_chunks();
    let mut words = words
        .iter()
        .map(|word| unmixed(u64::from_le_bytes(*word)))
        .zip(index * WORDS_IN_A_SECTOR..);
    let (first, _) = words.clone().next()?;
    let number = first >> 32;
    words
        .all(|(word, position)| word == (number << 32 | position))
        .then_some(number)
}

const fn unmixed(word: u64) -> u64 {
    word.wrapping_mul(UNMIX).wrapping_sub(1)
}

/// The inverse of an odd number, by Newton's iteration: each step doubles the bits that are right.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut step = 0;
    while step < 6 {
        found = found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `testguest` writes it.
    fn block(number: u64) -> Vec<u8> {
        (0..BLOCK_BYTES / 8)
            .flat_map(|position| {
                (number << 32 | position)
                    .wrapping_add(1)
                    .wrapping_mul(MIX)
                    .to_le_bytes()
            })
            .collect()
    }

    #[test]
    fn blocks_are_known_by_each_of_their_sectors() {
        let block = block(77);
        for (sector, index) in block.chunks(512).zip(0..) {
            assert_eq!(number_of(sector, index), Some(77));
            assert_eq!(number_of(sector, index + 1), None);
        }
        let mut torn = block[..512].to_vec();
        torn[511] ^= 1;
        assert_eq!(number_of(&torn, 0), None);
        assert_eq!(number_of(&[0; 512], 0), None);
    }

    #[test]
    fn a_block_that_is_older_than_promised_is_lost() {
        // Three places: 4 is where 1 was, 5 where 2 was.
        let disk = [block(3), block(4), block(2)].concat();
        let disk = Content::of_bytes(&disk);
        let blocks = scan_blocks(&disk, 3, 4, |_| true);
        assert_eq!((blocks.found, blocks.lost), (3, 0));
        let blocks = scan_blocks(&disk, 3, 5, |number| number != 5);
        assert_eq!((blocks.found, blocks.lost), (2, 0));
        let blocks = scan_blocks(&disk, 3, 5, |_| true);
        assert_eq!((blocks.found, blocks.lost), (2, 1));
        assert!(
            blocks
                .first_lost
                .starts_with("block 5: in the place of sector 0 is that of block 2"),
            "{}",
            blocks.first_lost
        );
    }

    #[test]
    fn a_later_block_that_was_half_written_harms_no_promise() {
        let mut disk = [block(3), block(4), block(2)].concat();
        disk[..2048].copy_from_slice(&block(6)[..2048]);
        let blocks = scan_blocks(&Content::of_bytes(&disk), 3, 4, |_| true);
        assert_eq!((blocks.found, blocks.lost), (3, 0));
    }
}
