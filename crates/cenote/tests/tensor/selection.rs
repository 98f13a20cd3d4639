//! How a tensor reports its choice of memory.

use cenote::{DType, Error, Tensor, TensorMemory, Unavailable};

use super::{Case, cases, options_for};

pub(super) const CASES: &[Case] = cases![selection_names_the_memory_and_what_was_passed_over];

fn selection_names_the_memory_and_what_was_passed_over(memory: TensorMemory) {
    let asked = options_for(memory).create(&[4], DType::U8).unwrap();
    let heap = asked.selection().dma_heap().map(|heap| format!(" from {heap}"));
    assert_eq!(heap.is_some(), memory == TensorMemory::Dma);
    let from = heap.unwrap_or_default();
    assert_eq!(asked.selection().to_string(), format!("{memory} (allocated{from})"));
    assert!(asked.selection().passed_over().is_empty());
    assert_eq!(asked.index(0, 1).unwrap().selection().chosen(), memory);

    let any = Tensor::new(&[4], DType::U8).unwrap();
    let selection = any.selection();
    let tried = TensorMemory::PREFERENCE.into_iter().take_while(|&kind| kind != any.memory());
    assert!(selection.passed_over().iter().map(|passed| passed.memory).eq(tried));
    for passed in selection.passed_over() {
        let words = format!("not {}: {}", passed.memory, passed.why);
        assert!(selection.to_string().contains(&words), "{selection}");
    }
    for kind in TensorMemory::ALL {
        match (kind.availability(), Tensor::options().memory(kind).create(&[4], DType::U8)) {
            (Ok(()), created) => assert_eq!(created.unwrap().memory(), kind),
            (Err(why), created) => {
                let error = created.unwrap_err();
                assert!(
                    matches!(error, Error::Unavailable { memory, .. } if memory == kind.name())
                );
                assert!(error.to_string().contains(&why.to_string()), "{error}");
            }
        }
    }
    // cenote never creates a GL context on its own initiative.
    let pbo = Tensor::options().memory(TensorMemory::Pbo).create(&[4], DType::U8);
    assert!(matches!(pbo, Err(Error::Unavailable { why: Unavailable::NeedsContext, .. })));
}
