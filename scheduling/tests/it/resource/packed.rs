//! The packed word against the plain list that it stands for, for all layouts of `u64` and `u128`.

use fdn_scheduling::resource::{
    DeviceChoice, DeviceSet, Layout, Packed, ResourceError, Units, Word,
};
use proptest::prelude::*;

fn units(values: &[u64]) -> Vec<Units> {
    values.iter().copied().map(Units).collect()
}

#[test]
fn worked_example_of_four_devices_of_16_bits() {
    let layout = Layout::<u64>::new(4, 16).unwrap();
    let packed = layout.pack(&units(&[20480, 1024, 0, 16384])).unwrap();
    assert_eq!(packed.word(), 0x4000_0000_0400_5000);
    assert_eq!(packed.word(), 4_611_686_018_494_517_248);
    assert_eq!(layout.get(packed, 0), Ok(Units(20480)));
    assert_eq!(layout.get(packed, 3), Ok(Units(16384)));
    assert_eq!(layout.total(packed), 20480 + 1024 + 16384);
}

#[test]
fn worked_example_of_eight_devices_of_7_bits() {
    let layout = Layout::<u64>::new(8, 7).unwrap();
    let quantities = [48, 12, 80, 0, 16, 7, 80, 33];
    let packed = layout.pack(&units(&quantities)).unwrap();
    assert_eq!(packed.word(), 18_929_436_998_239_792);
    assert_eq!(
        layout.unpack(packed).collect::<Vec<_>>(),
        units(&quantities)
    );
    let matches = layout.at_least(Units(48)).unwrap().matches(packed);
    assert_eq!(matches.devices(&layout), DeviceSet::from_iter([0, 2, 6]));
    assert_eq!(layout.largest(packed, layout.all()), Some((2, Units(80))));
    assert_eq!(layout.smallest(packed, layout.all()), Some((3, Units(0))));
}

#[test]
fn worked_example_of_the_choice_of_a_device() {
    // Used (10, 30, 20) of 40 each.
    let layout = Layout::<u64>::new(3, 6).unwrap();
    let free = layout.pack(&units(&[30, 10, 20])).unwrap();
    let choose = |wanted, choice| {
        let among = layout.at_least(Units(wanted)).unwrap().matches(free);
        // Counted from 1, as in the source.
        layout.choose(free, among, choice).map(|device| device + 1)
    };
    assert_eq!(choose(8, DeviceChoice::LeastUsed), Some(1));
    assert_eq!(choose(8, DeviceChoice::MostUsed), Some(2));
    assert_eq!(choose(15, DeviceChoice::MostUsed), Some(3));
    assert_eq!(choose(31, DeviceChoice::MostUsed), None);
}

#[test]
fn equal_devices_go_by_their_index() {
    let layout = Layout::<u64>::new(4, 4).unwrap();
    let free = layout.pack(&units(&[3, 9, 9, 3])).unwrap();
    let among = layout.all();
    assert_eq!(layout.choose(free, among, DeviceChoice::LeastUsed), Some(1));
    assert_eq!(layout.choose(free, among, DeviceChoice::MostUsed), Some(0));
    let three = layout.choose_many(free, among, 3, DeviceChoice::LeastUsed);
    assert_eq!(three, Some(DeviceSet::from_iter([0, 1, 2])));
    assert_eq!(
        layout.choose_many(free, among, 5, DeviceChoice::LeastUsed),
        None
    );
}

#[test]
fn a_layout_must_fit_its_word() {
    for (devices, bits) in [
        (0, 8),
        (8, 0),
        (5, 13),
        (65, 1),
        (1, 65),
        (u32::MAX, u32::MAX),
    ] {
        let error = Layout::<u64>::new(devices, bits).unwrap_err();
        assert_eq!(
            error,
            ResourceError::Layout {
                devices,
                bits,
                word: 64
            }
        );
    }
    assert!(Layout::<u128>::new(5, 13).is_ok());
    assert!(Layout::<u128>::new(14, 9).is_ok(), "80 GiB in 256 MiB");
    assert!(Layout::<u128>::new(15, 9).is_err());
}

#[test]
fn what_does_not_fit_a_field_is_refused_and_never_reaches_its_neighbour() {
    let layout = Layout::<u64>::new(4, 4).unwrap();
    let too_much = |device, quantity| ResourceError::TooMuch {
        device,
        quantity: Units(quantity),
        most: Units(15),
    };
    assert_eq!(layout.pack(&units(&[1, 16])), Err(too_much(1, 16)));
    let packed = layout.pack(&units(&[15, 1])).unwrap();
    assert_eq!(layout.add(packed, 0, Units(1)), Err(too_much(0, 16)));
    assert_eq!(
        layout.add(packed, 1, Units(u64::MAX)),
        Err(too_much(1, u64::MAX))
    );
    assert_eq!(
        layout.sub(packed, 1, Units(2)),
        Err(ResourceError::TooLittle {
            device: 1,
            wanted: Units(2),
            has: Units(1)
        })
    );
    let no_such = ResourceError::NoSuchDevice {
        device: 4,
        devices: 4,
    };
    assert_eq!(layout.get(packed, 4), Err(no_such));
    assert_eq!(layout.add(packed, 4, Units(0)), Err(no_such));
    assert_eq!(
        layout.pack(&units(&[0; 5])),
        Err(ResourceError::Devices {
            given: 5,
            devices: 4
        })
    );
    assert!(layout.at_least(Units(16)).is_none(), "no device has 16");
}

#[test]
fn a_foreign_word_is_taken_only_if_it_fits_the_layout() {
    let layout = Layout::<u64>::new(4, 4).unwrap();
    assert_eq!(layout.adopt(0xFFFF).unwrap().word(), 0xFFFF);
    assert_eq!(layout.adopt(0x1_0000), Err(ResourceError::Stray));
    let wide = Layout::<u128>::new(1, 128).unwrap();
    assert!(wide.adopt(u128::from(u64::MAX)).is_ok());
    assert_eq!(wide.adopt(1 << 64), Err(ResourceError::Stray));
    assert_eq!(wide.most(), Units(u64::MAX));
    let full = wide.pack(&[Units(u64::MAX)]).unwrap();
    assert!(wide.add(full, 0, Units(1)).is_err(), "no unit counts that");
    let whole = Layout::<u64>::new(4, 16).unwrap();
    assert!(whole.adopt(u64::MAX).is_ok());
}

/// The answers to every question, from a list.
struct Naive<'a>(&'a [u64]);

impl Naive<'_> {
    fn at_least(&self, wanted: u64) -> Vec<u32> {
        (0..)
            .zip(self.0)
            .filter(|(_, has)| **has >= wanted)
            .map(|(device, _)| device)
            .collect()
    }

    /// Best first.
    fn ranked(&self, wanted: u64, choice: DeviceChoice) -> Vec<u32> {
        let mut fitting = self.at_least(wanted);
        fitting.sort_by_key(|&device| match choice {
            DeviceChoice::LeastUsed => (u64::MAX - self.0[device as usize], device),
            DeviceChoice::MostUsed => (self.0[device as usize], device),
        });
        fitting
    }
}

fn agree<W: Word>(layout: &Layout<W>, values: &[u64], wanted: u64) -> Result<(), TestCaseError> {
    let packed = layout.pack(&units(values)).expect("they fit");
    prop_assert_eq!(layout.unpack(packed).collect::<Vec<_>>(), units(values));
    prop_assert_eq!(layout.adopt(packed.word()), Ok(packed));
    let naive = Naive(values);
    let total: u128 = values.iter().copied().map(u128::from).sum();
    prop_assert_eq!(layout.total(packed), total);

    let fitting = naive.at_least(wanted);
    let Some(threshold) = layout.at_least(Units(wanted)) else {
        prop_assert!(wanted > layout.most().get() && fitting.is_empty());
        return Ok(());
    };
    let matches = threshold.matches(packed);
    prop_assert_eq!(matches.any(), !fitting.is_empty());
    prop_assert_eq!(matches.count() as usize, fitting.len());
    prop_assert_eq!(matches.first(layout), fitting.first().copied());
    let devices: Vec<u32> = matches.devices(layout).iter().collect();
    prop_assert_eq!(&devices, &fitting);
    for count in [0, 1, 2, fitting.len(), fitting.len() + 1] {
        prop_assert_eq!(matches.at_least(count as u32), fitting.len() >= count);
    }
    let others = (0..).zip(values).filter(|(d, _)| !fitting.contains(d));
    let others: u128 = others.map(|(_, has)| u128::from(*has)).sum();
    prop_assert_eq!(layout.total_of_others(packed, matches), others);

    for choice in [DeviceChoice::LeastUsed, DeviceChoice::MostUsed] {
        let ranked = naive.ranked(wanted, choice);
        prop_assert_eq!(
            layout.choose(packed, matches, choice),
            ranked.first().copied()
        );
        for count in [1, ranked.len() / 2, ranked.len()] {
            let best = ranked[..count.min(ranked.len())].iter().copied().collect();
            let chosen = layout.choose_many(packed, matches, count as u32, choice);
            prop_assert_eq!(chosen, (count <= ranked.len()).then_some(best));
        }
    }
    let most = values.iter().max().copied().expect("a device");
    let at = values.iter().position(|v| *v == most).expect("it is there");
    let largest = layout.largest(packed, layout.all());
    prop_assert_eq!(largest, Some((at as u32, Units(most))));
    let least = values.iter().min().copied().expect("a device");
    let at = values
        .iter()
        .position(|v| *v == least)
        .expect("it is there");
    let smallest = layout.smallest(packed, layout.all());
    prop_assert_eq!(smallest, Some((at as u32, Units(least))));
    Ok(())
}

fn change<W: Word>(layout: &Layout<W>, values: &[u64], by: u64) -> Result<(), TestCaseError> {
    let packed = layout.pack(&units(values)).expect("they fit");
    for device in 0..layout.devices() {
        let has = values[device as usize];
        let with = |value: u64| -> Packed<W> {
            let mut changed = values.to_vec();
            changed[device as usize] = value;
            layout.pack(&units(&changed)).expect("they fit")
        };
        let sum = has
            .checked_add(by)
            .filter(|sum| *sum <= layout.most().get());
        match layout.add(packed, device, Units(by)) {
            Ok(added) => prop_assert_eq!(Some(added), sum.map(with)),
            Err(_) => prop_assert_eq!(sum, None),
        }
        match layout.sub(packed, device, Units(by)) {
            Ok(taken) => prop_assert_eq!(Some(taken), has.checked_sub(by).map(with)),
            Err(_) => prop_assert!(has < by),
        }
    }
    Ok(())
}

/// Quantities that are often at the borders, where carries and borrows would show.
fn quantities(bits: u32, devices: u32) -> impl Strategy<Value = Vec<u64>> {
    let most = u64::MAX >> (64 - bits.min(64));
    let one = prop_oneof![
        2 => 0..=most,
        1 => Just(0),
        1 => Just(most),
        1 => Just(most / 2),
        1 => Just(most / 2 + most % 2),
    ];
    prop::collection::vec(one, devices as usize)
}

fn all_layouts<W: Word>(word: u32) -> impl Iterator<Item = Layout<W>> {
    (1..=word).flat_map(move |devices| {
        (1..=word / devices).map(move |bits| Layout::new(devices, bits).expect("it fits"))
    })
}

/// A few hundred layouts times a few cases each.
fn every_layout<W: Word>(word: u32, cases: u32) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
    for layout in all_layouts::<W>(word) {
        let values = quantities(layout.bits(), layout.devices());
        let wanted = quantities(layout.bits(), 1);
        runner
            .run(&(values, wanted), |(values, wanted)| {
                agree(&layout, &values, wanted[0])?;
                // What one device has, so that equality is common.
                agree(&layout, &values, values[0])?;
                agree(&layout, &values, values[0].saturating_add(1))?;
                change(&layout, &values, wanted[0])
            })
            .expect("the same answers");
    }
}

#[test]
fn every_layout_of_64_bits_answers_as_the_list_does() {
    every_layout::<u64>(64, 1);
}

#[test]
fn every_layout_of_128_bits_answers_as_the_list_does() {
    every_layout::<u128>(128, 1);
}

mod soak {
    use super::*;

    #[test]
    fn every_layout_answers_as_the_list_does() {
        every_layout::<u64>(64, 6);
        every_layout::<u128>(128, 6);
    }
}

proptest! {
    #[test]
    fn devices_compare_with_devices_one_by_one(
        (devices, bits, left, right) in (1u32..=16, 1u32..=8)
            .prop_flat_map(|(n, b)| (Just(n), Just(b), quantities(b, n), quantities(b, n)))
    ) {
        let layout = Layout::<u128>::new(devices, bits).unwrap();
        let (x, y) = (layout.pack(&units(&left)).unwrap(), layout.pack(&units(&right)).unwrap());
        let expected: DeviceSet = (0..).zip(left.iter().zip(&right))
            .filter(|(_, (x, y))| x >= y)
            .map(|(device, _)| device)
            .collect();
        prop_assert_eq!(layout.at_least_each(x, y).devices(&layout), expected);
        let present: DeviceSet = (0..).zip(&left).filter(|(_, x)| **x > 0).map(|(d, _)| d).collect();
        prop_assert_eq!(layout.present(x).devices(&layout), present);
    }
}
