"""The TensorFlow ops that a graph of unknown origin may contain: those without effects outside the process.

An op is listed if its documentation and its kernel show that it does nothing but compute its outputs from its inputs.
Ops that open a file, a socket or a database, run Python, talk to another process or device, write to the log, end the
process, or wait for another process are not listed. TensorFlow's own flag is no criterion: to it, ReadFile is
stateless. An op that is not listed, such as a custom op or one that a later TensorFlow adds, is refused.
"""

from __future__ import annotations

# Group: why its ops are allowed, and their names.
GROUPS: dict[str, tuple[str, str]] = {
    "structure": (
        "pass tensors on, or name the inputs and outputs of a graph; an assertion only fails the run",
        """
        Assert Const EnsureShape FakeParam GuaranteeConst Identity IdentityN NoOp Placeholder PlaceholderV2
        PlaceholderWithDefault PreventGradient Snapshot StopGradient ToBool
        """,
    ),
    "control flow": (
        "run functions of the same file, whose ops are checked as well, in this process",
        """
        Case ControlTrigger DeviceIndex Enter Exit For If LoopCond MapDefun Merge NextIteration PartitionedCall
        StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile Switch SymbolicGradient While
        """,
    ),
    "math": (
        "arithmetic on tensors in memory",
        """
        Abs AccumulateNV2 Acos Acosh Add AddN AddV2 All Angle Any ApproximateEqual ArgMax ArgMin Asin Asinh Atan Atan2
        Atanh BatchMatMul BatchMatMulV2 BatchMatMulV3 Bincount Bucketize Cast Ceil CheckNumerics CheckNumericsV2
        Cholesky ClipByValue Complex ComplexAbs Conj Cos Cosh Cross Cumprod Cumsum CumulativeLogsumexp DenseBincount
        Digamma Div DivNoNan Einsum Equal Erf Erfc Erfinv EuclideanNorm Exp Expm1 Floor FloorDiv FloorMod Greater
        GreaterEqual HistogramFixedWidth Imag Inv InvGrad IsFinite IsInf IsNan L2Loss Less LessEqual Lgamma LinSpace Log
        Log1p LogicalAnd LogicalNot LogicalOr MatMul MatrixInverse Max Maximum Mean Min Minimum Mod Mul MulNoNan Neg
        NextAfter NotEqual Pow Prod Qr RaggedBincount Range Real RealDiv Reciprocal ReciprocalGrad Rint Round Rsqrt
        RsqrtGrad SegmentMax SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum
        SegmentSumV2 Select SelectV2 Sigmoid SigmoidGrad Sign Sin Sinh Sqrt SqrtGrad Square SquaredDifference Sub Sum
        Svd Tan Tanh TanhGrad TruncateDiv TruncateMod UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
        UnsortedSegmentSum Xdivy Xlog1py Xlogy
        """,
    ),
    "bits and sets": (
        "arithmetic on integers and sets in memory",
        """
        BitwiseAnd BitwiseOr BitwiseXor DenseToDenseSetOperation DenseToSparseSetOperation Invert LeftShift
        PopulationCount RightShift SetSize SparseToSparseSetOperation
        """,
    ),
    "arrays": (
        "cut, join and rearrange tensors in memory",
        """
        BatchToSpace BatchToSpaceND Bitcast BroadcastArgs BroadcastGradientArgs BroadcastTo Concat ConcatOffset ConcatV2
        ConjugateTranspose DepthToSpace Diag DiagPart DynamicPartition DynamicStitch Empty ExpandDims Fill Gather
        GatherNd GatherV2 InvertPermutation ListDiff LowerBound MatrixBandPart MatrixDiag MatrixDiagPart
        MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3
        MirrorPad MirrorPadGrad NthElement OneHot OnesLike Pack Pad PadV2 ParallelDynamicStitch Rank Reshape Reverse
        ReverseSequence ReverseV2 Roll ScatterNd ScatterNdNonAliasingAdd Shape ShapeN Size Slice SpaceToBatch
        SpaceToBatchND SpaceToDepth Split SplitV Squeeze StridedSlice StridedSliceGrad TensorScatterAdd TensorScatterMax
        TensorScatterMin TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile TileGrad TopK TopKV2
        Transpose Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UpperBound Where ZerosLike
        """,
    ),
    "lists of tensors": (
        "arrays, lists, maps and stacks of tensors in memory",
        """
        CompositeTensorVariantFromComponents CompositeTensorVariantToComponents EmptyTensorList EmptyTensorMap
        OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone StackCloseV2 StackPopV2 StackPushV2 StackV2
        TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 TensorArrayGradWithShape
        TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3
        TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListElementShape TensorListFromTensor
        TensorListGather TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListPushBackBatch
        TensorListReserve TensorListResize TensorListScatter TensorListScatterIntoExistingList TensorListScatterV2
        TensorListSetItem TensorListSplit TensorListStack TensorMapErase TensorMapHasKey TensorMapInsert TensorMapLookup
        TensorMapSize TensorMapStackKeys
        """,
    ),
    "strings": (
        "work on strings in memory; ShardedFilename and ShardedFilespec only put a name together",
        """
        AsString DecodeBase64 EncodeBase64 ReduceJoin RegexFullMatch RegexReplace ShardedFilename ShardedFilespec
        StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams
        StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
        StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
        UnicodeTranscode UnsortedSegmentJoin
        """,
    ),
    "parsing": (
        "decode bytes that are in memory; DecodeProtoV2, which can read a descriptor from a file, is not among them",
        """
        DecodeCSV DecodeCompressed DecodeJSONExample DecodePaddedRaw DecodeRaw ParseExample ParseExampleV2
        ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample ParseTensor
        SerializeTensor
        """,
    ),
    "summaries": (
        "make the bytes of a summary; those that write it to a file are not among them",
        """
        HistogramSummary ImageSummary MergeSummary ScalarSummary TensorSummary TensorSummaryV2
        """,
    ),
    "ragged": (
        "work on ragged tensors in memory",
        """
        RaggedCountSparseOutput RaggedCross RaggedFillEmptyRows RaggedFillEmptyRowsGrad RaggedGather RaggedRange
        RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
        RaggedTensorToVariantGradient
        """,
    ),
    "sparse": (
        "work on sparse tensors in memory",
        """
        DenseCountSparseOutput DeserializeManySparse DeserializeSparse SparseAdd SparseAddGrad SparseBincount
        SparseConcat SparseCountSparseOutput SparseCross SparseCrossHashed SparseCrossV2 SparseDenseCwiseAdd
        SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows SparseFillEmptyRowsGrad SparseReduceMax
        SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseReorder SparseReshape SparseSegmentMean
        SparseSegmentMeanGrad SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
        SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum
        SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments SparseSlice SparseSliceGrad
        SparseSoftmax SparseSparseMaximum SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul
        SparseToDense
        """,
    ),
    "random": (
        "draw numbers in memory; a generator's state is a variable",
        """
        Multinomial RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt RngReadAndSkip RngSkip
        StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt
        StatefulUniformInt StatelessMultinomial StatelessRandomGetAlg StatelessRandomGetKeyCounter
        StatelessRandomGetKeyCounterAlg StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform
        StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
        StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessShuffle StatelessTruncatedNormal
        StatelessTruncatedNormalV2 TruncatedNormal
        """,
    ),
    "neural networks": (
        "layers and their gradients, computed in memory",
        """
        ApproxTopK AvgPool AvgPoolGrad BiasAdd BiasAddGrad BiasAddV1 Conv Conv2D Conv2DBackpropFilter
        Conv2DBackpropFilterV2 Conv2DBackpropInput Conv2DBackpropInputV2 DataFormatDimMap DataFormatVecPermute
        DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Elu EluGrad
        FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel FusedBatchNorm
        FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 InTopK InTopKV2
        LeakyRelu LeakyReluGrad LogSoftmax MaxPool MaxPoolGrad MaxPoolGradV2 MaxPoolGradWithArgmax MaxPoolV2
        MaxPoolWithArgmax Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Softmax SoftmaxCrossEntropyWithLogits Softplus
        SoftplusGrad Softsign SoftsignGrad SparseSoftmaxCrossEntropyWithLogits
        """,
    ),
    "images": (
        "decode, encode and change images in memory",
        """
        AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation CropAndResize DecodeAndCropJpeg DecodeBmp DecodeGif
        DecodeImage DecodeJpeg DecodePng DecodeWebP EncodeJpeg EncodeJpegVariableQuality EncodePng ExtractImagePatches
        ExtractJpegShape HSVToRGB ImageProjectiveTransformV2 ImageProjectiveTransformV3 RGBToHSV RandomCrop ResizeArea
        ResizeBicubic ResizeBilinear ResizeNearestNeighbor ScaleAndTranslate
        """,
    ),
    "variables": (
        "hold and change variables of this process, and train them",
        """
        Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp DestroyResourceOp
        DestroyTemporaryVariable DisableCopyOnRead IsVariableInitialized ReadVariableOp ResourceGather ResourceGatherNd
        TemporaryVariable VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2
        """,
    ),
    "lookup tables": (
        "hold tables of this process; ops that fill one from a file are in FILE_INPUTS",
        """
        AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
        HashTable HashTableV2 InitializeTable InitializeTableFromDataset InitializeTableV2 LookupTableExport
        LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImport LookupTableImportV2 LookupTableInsert
        LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize LookupTableSizeV2 MutableDenseHashTable
        MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors MutableHashTableOfTensorsV2
        MutableHashTableV2
        """,
    ),
    "tf.data in memory": (
        "make and change datasets of tensors in memory; those that read, cache or save files are not among them",
        """
        AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AssertCardinalityDataset BatchDataset BatchDatasetV2
        ConcatenateDataset DatasetCardinality DatasetToSingleElement DeleteIterator DenseToSparseBatchDataset
        DirectedInterleaveDataset FilterDataset FinalizeDataset FlatMapDataset GroupByReducerDataset
        GroupByWindowDataset IgnoreErrorsDataset InterleaveDataset Iterator IteratorGetNext IteratorGetNextAsOptional
        IteratorGetNextSync IteratorV2 ListDataset MakeIterator MapAndBatchDataset MapDataset
        MaxIntraOpParallelismDataset ModelDataset OneShotIterator OptimizeDatasetV2 OptionsDataset PaddedBatchDataset
        PaddedBatchDatasetV2 ParallelBatchDataset ParallelFilterDataset ParallelInterleaveDatasetV2
        ParallelInterleaveDatasetV3 ParallelInterleaveDatasetV4 ParallelMapDataset ParallelMapDatasetV2
        ParseExampleDataset ParseExampleDatasetV2 PrefetchDataset PrivateThreadPoolDataset RandomDataset RandomDatasetV2
        RangeDataset RebatchDataset RebatchDatasetV2 ReduceDataset RepeatDataset RewriteDataset SamplingDataset
        ScanDataset ShardDataset ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2 ShuffleDataset ShuffleDatasetV2
        ShuffleDatasetV3 SkipDataset SlidingWindowDataset SparseTensorSliceDataset TakeDataset TakeWhileDataset
        TensorDataset TensorSliceDataset UnbatchDataset UniqueDataset UnwrapDatasetVariant WindowDataset WindowOp
        WrapDatasetVariant ZipDataset
        """,
    ),
}

ALLOWED = frozenset(name for _, names in GROUPS.values() for name in names.split())

# Ops that read a file, and which input names it: allowed if that is a file of the SavedModel itself.
FILE_INPUTS = {"RestoreV2": 0, "InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1}

# Ops that write a checkpoint. Every export contains them; nothing that runs may lead to them.
SAVING = frozenset({"SaveV2", "MergeV2Checkpoints"})
