"""Lists the TensorFlow ops that a graph of unknown origin may contain: ops without effects outside the process.

An op is listed under two conditions. Its documentation and its kernel show that it only computes its outputs from its
inputs. And exports, Keras models or tf.Transform's graphs use it; so ops for audio, most ops of `tf.data` and
optimizers are left out.

Ops are not listed if they open a file, a socket or a database, run Python, talk to another process or device, write to
the log, end the process, or wait for another process. TensorFlow's own flag `stateful` does not help here: ReadFile,
for example, is stateless in TensorFlow. An op that is not listed, such as a custom op or an op of a later TensorFlow,
is refused.
"""

from __future__ import annotations

# Groups of ops: what the ops of a group do, and their names.
GROUPS: dict[str, str] = {
    "structure: pass tensors on, or name the inputs and outputs of a graph; an assertion only fails the run": """
        Assert Const EnsureShape FakeParam GuaranteeConst Identity IdentityN NoOp Placeholder PlaceholderV2
        PlaceholderWithDefault PreventGradient Snapshot StopGradient ToBool
    """,
    "control flow: run functions of the same file, whose ops are checked as well, in this process": """
        Case ControlTrigger DeviceIndex Enter Exit For If LoopCond MapDefun Merge NextIteration PartitionedCall
        StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile Switch SymbolicGradient While
    """,
    "math: arithmetic on tensors in memory": """
        Abs AccumulateNV2 Acos Acosh Add AddN AddV2 All Angle Any ApproximateEqual ArgMax ArgMin Asin Asinh Atan Atan2
        Atanh BatchMatMul BatchMatMulV2 BatchMatMulV3 Bincount Bucketize Cast Ceil CheckNumerics CheckNumericsV2
        ClipByValue Complex ComplexAbs Conj Cos Cosh Cross Cumprod Cumsum CumulativeLogsumexp DenseBincount Digamma Div
        DivNoNan Equal Erf Erfc Erfinv EuclideanNorm Exp Expint Expm1 Floor FloorDiv FloorMod Greater GreaterEqual
        HistogramFixedWidth Imag Inv InvGrad IsFinite IsInf IsNan L2Loss Less LessEqual Lgamma LinSpace Log Log1p
        LogicalAnd LogicalNot LogicalOr MatMul Max Maximum Mean Min Minimum Mod Mul MulNoNan Neg NextAfter NotEqual Pow
        Prod RaggedBincount Range Real RealDiv Reciprocal ReciprocalGrad Rint Round Rsqrt RsqrtGrad SegmentMax
        SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select
        SelectV2 Sigmoid SigmoidGrad Sign Sin Sinh Sqrt SqrtGrad Square SquaredDifference Sub Sum Tan Tanh TanhGrad
        TruncateDiv TruncateMod UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum Xdivy
        Xlog1py Xlogy
    """,
    "bits and sets: arithmetic on integers and sets in memory": """
        BitwiseAnd BitwiseOr BitwiseXor DenseToDenseSetOperation DenseToSparseSetOperation Invert LeftShift
        PopulationCount RightShift SetSize SparseToSparseSetOperation
    """,
    "arrays: cut, join and rearrange tensors in memory": """
        BatchToSpace BatchToSpaceND Bitcast BroadcastArgs BroadcastGradientArgs BroadcastTo Concat ConcatOffset ConcatV2
        ConjugateTranspose DepthToSpace Diag DiagPart DynamicPartition DynamicStitch EditDistance Empty ExpandDims Fill
        Fingerprint Gather GatherNd GatherV2 InvertPermutation ListDiff LowerBound MatrixBandPart MatrixDiag
        MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2
        MatrixSetDiagV3 MirrorPad MirrorPadGrad NthElement OneHot OnesLike Pack Pad PadV2 ParallelDynamicStitch Rank
        Reshape Reverse ReverseSequence ReverseV2 Roll ScatterNd ScatterNdNonAliasingAdd Shape ShapeN Size Slice
        SpaceToBatch SpaceToBatchND SpaceToDepth Split SplitV Squeeze StridedSlice StridedSliceGrad TensorScatterAdd
        TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile TileGrad
        TopK TopKV2 Transpose Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UpperBound Where
        ZerosLike
    """,
    "lists of tensors: arrays and lists of tensors in memory, optional values, an iterator that is fed": """
        EmptyTensorList IteratorGetNext OptionalFromValue OptionalGetValue OptionalNone TensorArrayCloseV3
        TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArrayV3
        TensorArrayWriteV3 TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather
        TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListResize
        TensorListSetItem TensorListStack
    """,
    "strings: work on strings in memory; ShardedFilename and ShardedFilespec only put a name together": """
        AsString DecodeBase64 EncodeBase64 ReduceJoin RegexFullMatch RegexReplace ShardedFilename ShardedFilespec
        StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams
        StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
        StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
        UnicodeTranscode UnsortedSegmentJoin
    """,
    "parsing: decode bytes that are in memory (DecodeProtoV2 can read a descriptor from a file)": """
        DecodeCSV DecodeCompressed DecodeJSONExample DecodePaddedRaw DecodeRaw ParseExample ParseExampleV2
        ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample ParseTensor
        SerializeTensor
    """,
    "summaries: make the bytes of a summary; those that write it to a file are not among them": """
        HistogramSummary ImageSummary MergeSummary ScalarSummary TensorSummary TensorSummaryV2
    """,
    "ragged: work on ragged tensors in memory": """
        RaggedCountSparseOutput RaggedCross RaggedFillEmptyRows RaggedFillEmptyRowsGrad RaggedGather RaggedRange
        RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
        RaggedTensorToVariantGradient
    """,
    "sparse: work on sparse tensors in memory": """
        SparseAdd SparseBincount SparseConcat SparseCross SparseCrossHashed SparseCrossV2 SparseDenseCwiseMul
        SparseFillEmptyRows SparseReduceMax SparseReduceSum SparseReorder SparseReshape SparseSegmentMean
        SparseSegmentMeanGrad SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
        SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum
        SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments SparseSlice SparseSoftmax
        SparseTensorDenseAdd SparseTensorDenseMatMul SparseToDense
    """,
    "linear algebra: decompose and solve matrices": """
        Cholesky Einsum LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixSolve MatrixTriangularSolve Qr
        SelfAdjointEigV2 Svd
    """,
    "random: draw numbers in memory; a generator's state is a variable": """
        Multinomial RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt RngReadAndSkip RngSkip
        StatefulStandardNormalV2 StatefulUniform StatefulUniformFullInt StatefulUniformInt StatelessRandomGetAlg
        StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormal StatelessRandomNormalV2
        StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
        StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessShuffle StatelessTruncatedNormal
        StatelessTruncatedNormalV2 TruncatedNormal
    """,
    "neural networks: layers and their gradients, computed in memory": """
        AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BiasAdd BiasAddGrad Conv2D Conv2DBackpropFilter Conv2DBackpropInput
        Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2 CudnnRNNBackpropV3
        CudnnRNNV2 CudnnRNNV3 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
        DepthwiseConv2dNativeBackpropInput Elu EluGrad FusedBatchNormGradV3 FusedBatchNormV3 LRN LRNGrad LeakyRelu
        LeakyReluGrad LogSoftmax MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad MaxPoolV2 Relu Relu6 Relu6Grad ReluGrad
        Selu SeluGrad Softmax Softplus SoftplusGrad Softsign SoftsignGrad
    """,
    "quantized: round numbers as a graph of few bits would": """
        FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient
        FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient
    """,
    "images: decode, encode and change images in memory": """
        AdjustContrastv2 AdjustHue AdjustSaturation CropAndResize DecodeAndCropJpeg DecodeImage DecodeJpeg DecodePng
        DecodeWebP EncodeJpeg EncodePng ExtractImagePatches ExtractJpegShape HSVToRGB ImageProjectiveTransformV2
        ImageProjectiveTransformV3 RGBToHSV ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor
        ScaleAndTranslate StatelessSampleDistortedBoundingBox
    """,
    "pipelines: decode the images of a request side by side, from memory, and leave out those that are broken": """
        BatchDatasetV2 IgnoreErrorsDataset OptionsDataset ParallelMapDatasetV2 ReduceDataset TensorSliceDataset
    """,
    "variables: hold and change variables of this process": """
        Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp DestroyResourceOp
        DisableCopyOnRead IsVariableInitialized ReadVariableOp ResourceGather ResourceGatherNd ResourceScatterAdd
        ResourceScatterUpdate ResourceStridedSliceAssign VarHandleOp VarIsInitializedOp Variable VariableShape
        VariableV2
    """,
    "lookup tables: hold tables of this process; ops that fill one from a file are in FILE_INPUTS": """
        AnonymousHashTable AnonymousMutableHashTable HashTable HashTableV2 InitializeTable InitializeTableV2
        LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImportV2 LookupTableInsert LookupTableInsertV2
        LookupTableRemoveV2 LookupTableSize LookupTableSizeV2 MutableDenseHashTableV2 MutableHashTable
        MutableHashTableOfTensorsV2 MutableHashTableV2
    """,
}

ALLOWED = frozenset(name for names in GROUPS.values() for name in names.split())

# Ops that read a file, and the index of the input with the file's name. Allowed for files of the SavedModel itself.
FILE_INPUTS = {"RestoreV2": 0, "InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1}

# Ops that write a checkpoint. Every export contains them, so they are allowed in the file, but must never be run.
SAVING = frozenset({"SaveV2", "MergeV2Checkpoints"})
