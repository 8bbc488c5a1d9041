//! Products of two values, with leading axes, dense and as views.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn matmul_of_values_and_of_views(
        lead in prop::collection::vec(1usize..4, 0..3),
        (m, k, n) in (1usize..9, 1usize..9, 1usize..9),
        order in Just([0usize, 1, 2, 3]).prop_shuffle(),
        seed in 0u64..99,
    ) {
        let (x, y) = ([lead.as_slice(), &[m, k]].concat(), [lead.as_slice(), &[k, n]].concat());
        let product = |x: &Nd, y: &Nd| {
            positions(&[lead.as_slice(), &[m, n]].concat()).iter().map(|p| {
                let (outer, i, j) = (&p[..lead.len()], p[lead.len()], p[lead.len() + 1]);
                let terms = (0..k).map(|k| x.at(&[outer, &[i, k]].concat()) * y.at(&[outer, &[k, j]].concat()));
                (terms.clone().sum(), terms.map(f64::abs).sum())
            }).collect::<Vec<(f64, f64)>>()
        };
        holds(Op::MatMul, &[&x, &y], seed, |a| product(&a[0], &a[1]));
        // The second operand as a view: stored in another order of axes, as heads are.
        let perm: Vec<usize> = order.into_iter().filter(|axis| *axis < y.len()).collect();
        let mut stored = vec![0; y.len()];
        perm.iter().zip(&y).for_each(|(axis, extent)| stored[*axis] = *extent);
        let mut b = Builder::new("g");
        let (a, v) = (b.input("x0", f32s(&x)).unwrap(), b.input("x1", f32s(&stored)).unwrap());
        let v = b.push("view", Op::Transpose { perm: perm.clone() }, &[v]).unwrap();
        let out = b.push("y", Op::MatMul, &[a, v]).unwrap();
        b.output("y", out);
        let values = [numbers(x.iter().product(), seed), numbers(y.iter().product(), seed + 1)];
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
        let inner = Nd { dims: stored, values: wide(&values[1]) };
        let turned = positions(&y).iter().map(|p| {
            let mut from = vec![0; y.len()];
            perm.iter().zip(p).for_each(|(axis, i)| from[*axis] = *i);
            inner.at(&from)
        }).collect();
        let want = product(&Nd { dims: x, values: wide(&values[0]) }, &Nd { dims: y, values: turned });
        for (got, (want, terms)) in run(&b.finish(), &values).iter().zip(want) {
            prop_assert!((f64::from(*got) - want).abs() <= 1e-6 * terms);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn einsum_is_a_product_for_each_outer_and_third(
        (n, c, h) in (1usize..3, 1usize..6, 1usize..4),
        (w, u) in (1usize..9, 1usize..9),
        seed in 0u64..99,
    ) {
        holds(Op::Einsum, &[&[n, c, h, w], &[n, w, h, u]], seed, |a| {
            positions(&[n, c, h, u]).iter().map(|p| {
                let terms = (0..w).map(|w| a[0].at(&[p[0], p[1], p[2], w]) * a[1].at(&[p[0], w, p[2], p[3]]));
                (terms.clone().sum(), terms.map(f64::abs).sum())
            }).collect()
        });
    }
}
